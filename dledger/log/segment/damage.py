"""Holes: places in a segment without the frames that were written there, found by every check there is.

A frame has the same bytes on every node and a fixed place in its segment. So the frames missing in a hole are known
exactly::

    … good frame │ hole: [first, last], [offset, end_offset) │ next good frame …
      previous ──┘                                           └── what the frames must lead to: ``following``, or the
                                                                 point where the segment is known to end

Behind a bad header, the next header that parses is looked for. A record's bytes can imitate a frame. So a candidate is
accepted only if its chain leads to the known end of the segment. Between two holes no chain can be checked: there the
candidates are chosen that leave the fewest bytes unexplained. Frames are only written back if they lead from
``previous`` to what follows (repair.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from dledger.common.errors import DLedgerError
from dledger.common.types import GENESIS, LogPoint, Position, TrimPoint
from dledger.log.frame.frame import HEADER_BYTES, MAGIC, FrameHeader, check_link, parse_frame, parse_header
from dledger.log.frame.scan import FrameScanner, ReadAt
from dledger.log.log_api import Damaged, DamagedRange
from dledger.log.segment.segment import FIRST_PAGE_BYTES, Segment

_MAGIC = MAGIC.to_bytes(4, "little")
_MAX_CANDIDATES = 64
"""Places that are tried as the next good frame behind one bad place."""
_MAX_HOLES = 200
"""In one segment; what lies behind is one more hole."""


class Reach(NamedTuple):
    """Where the frames of a segment end, as a mark, a trailer or the following segment says."""

    offset: int | None
    """None: not known. Nothing but zeros lies behind."""
    point: LogPoint
    next_index: int | None
    """The index behind the last record; None: not known."""


class Hole(NamedTuple):
    """What one segment lacks."""

    segment: Segment
    offset: int
    end_offset: int | None
    """None: nothing lies behind it in the segment, and its size is not known."""
    previous: LogPoint
    next_index: int
    """Of the first record in it."""
    last: Position
    following: bytes
    """The header of the good frame behind it; empty if it ends with the segment's frames."""
    end: LogPoint | None
    """Of its last frame; None if ``following`` tells."""
    end_index: int | None
    """Behind its last record; None: not known."""

    @property
    def first(self) -> Position:
        return Position(self.previous.position + 1)


class Damage:
    """The holes of one log, ascending. Changed on the event loop alone.

    Holes in trimmed frames are kept, as a reader of later frames has to step over them. They are not missed: nobody
    needs them back. Of a hole that reaches over the log's beginning, only the part behind the beginning is missed.
    """

    def __init__(self) -> None:
        self._holes: list[Hole] = []
        self._begin = TrimPoint(GENESIS, 0)

    def __bool__(self) -> bool:
        return any(map(self.is_missed, self._holes))

    def is_missed(self, hole: Hole) -> bool:
        return hole.last > self._begin.point.position

    def ranges(self) -> list[DamagedRange]:
        """What is missed."""
        return [self._range(hole) for hole in self._holes if self.is_missed(hole)]

    def behind(self, hole: Hole) -> TrimPoint:
        """The point before the missed part of ``hole``; before the whole hole if it is not missed, or missed as a
        whole."""
        begin, start = self._begin, hole.previous.position
        is_over_the_beginning = start < begin.point.position < hole.last
        return begin if is_over_the_beginning else TrimPoint(hole.previous, hole.next_index)

    def refusal(self, hole: Hole) -> Damaged:
        missed = self._range(hole)
        return Damaged(
            f"{hole.segment.path} is damaged at offset {hole.offset}: frames {missed.first} to {missed.last} are being "
            "repaired from the other nodes; ask another node",
            missed,
        )

    def _range(self, hole: Hole) -> DamagedRange:
        previous = self.behind(hole).point
        return DamagedRange(Position(previous.position + 1), hole.last, previous)

    def of(self, segment: Segment) -> list[Hole]:
        """Ascending."""
        return [hole for hole in self._holes if hole.segment is segment]

    def found(self, segment: Segment, holes: Iterable[Hole]) -> None:
        """``holes`` are all that ``segment`` has."""
        kept = [hole for hole in self._holes if hole.segment is not segment]
        self._holes = sorted([*kept, *holes], key=lambda hole: hole.previous.position)

    def hides_end(self, segment: Segment) -> bool:
        """Whether it is not known where the frames of ``segment`` end."""
        return any(hole.end_offset is None for hole in self.of(segment))

    def find(self, damaged: DamagedRange) -> Hole | None:
        """None for what is not missed, or not any more."""
        return next((hole for hole in self._holes if self.is_missed(hole) and self._range(hole) == damaged), None)

    def begin_at(self, begin: TrimPoint) -> None:
        """The log begins there: what it lacks before is not missed."""
        self._begin = begin
        self.forget_gone()

    def end_at(self, position: int) -> None:
        """The log ends there. Only for a position that is no hole's."""
        self._holes = [hole for hole in self._holes if hole.previous.position < position]

    def forget_gone(self) -> None:
        """Forgets holes that are not missed, in segments that have left the log."""
        self._holes = [hole for hole in self._holes if self.is_missed(hole) or not hole.segment.gone]


def find_holes(read: ReadAt, size_bytes: int, segment: Segment, reach: Reach) -> list[Hole]:
    """What ``segment``, a file of ``size_bytes``, lacks of the frames up to ``reach``. Reads all of them. Blocks."""
    end = size_bytes if reach.offset is None else min(reach.offset, size_bytes)
    scanner = FrameScanner(read, FIRST_PAGE_BYTES, end, segment.previous, segment.name.base_index, path=segment.path)
    if reach.point.position > segment.previous.position:
        for _ in scanner:
            if scanner.previous.position >= reach.point.position:
                break
    if _has_arrived(scanner, reach):
        return []
    if scanner.previous.position >= reach.point.position:
        # Good frames, linked from the first to the last, and others than these were written: not one can be relied on.
        search = _Search(read, FIRST_PAGE_BYTES, end, segment, reach)
        return [search.hole_to_end(FIRST_PAGE_BYTES, segment.previous, segment.name.base_index)]
    return _Search(read, scanner.offset, end, segment, reach).holes(scanner)


def _has_arrived(scanner: FrameScanner, reach: Reach) -> bool:
    return scanner.previous == reach.point and reach.offset in (None, scanner.offset)


class _Search:
    """For good frames behind bad ones, in what the segment holds from the first bad one on."""

    def __init__(self, read: ReadAt, offset: int, end: int, segment: Segment, reach: Reach) -> None:
        self._base = offset
        self._end = end
        self._data = read(end - offset, offset) if end > offset else b""
        self._segment = segment
        self._reach = reach
        self._known: dict[int, list[Hole] | None] = {}
        """What ``_behind`` found."""

    def holes(self, stopped: FrameScanner, depth: int = 0) -> list[Hole]:
        """The holes from the place on at which ``stopped`` found no good frame. Of all ways to go on, it takes the one
        that misses the fewest bytes."""
        offset, previous, next_index = stopped.offset, stopped.previous, stopped.next_index
        best = [self.hole_to_end(offset, previous, next_index)]
        if depth == _MAX_HOLES:
            return best
        for at in islice(self._candidates(offset, previous, next_index), _MAX_CANDIDATES):
            if at - offset > self._missed(best)[0]:
                break  # it misses as much already
            head = self._data[at - self._base : at - self._base + HEADER_BYTES]
            header = parse_header(head)
            last = Position(header.position - 1)
            hole = Hole(self._segment, offset, at, previous, next_index, last, head, None, header.base_index)
            behind = self._behind(at, depth + 1)
            if behind is not None and self._missed([hole, *behind]) < self._missed(best):
                best = [hole, *behind]
        return best

    def _behind(self, offset: int, depth: int) -> list[Hole] | None:
        """The holes behind the frame at ``offset``; None when its run leads elsewhere than this log goes."""
        if offset not in self._known:
            first = parse_frame(self._data, offset - self._base).header
            scanner = FrameScanner(
                self._read,
                offset + first.stored_bytes,
                self._end,
                first.point,
                first.end_index,
                path=self._segment.path,
            )
            if first.position < self._reach.point.position:
                for _ in scanner:
                    if scanner.previous.position >= self._reach.point.position:
                        break
            if _has_arrived(scanner, self._reach):
                self._known[offset] = []
            elif scanner.previous.position < self._reach.point.position:
                self._known[offset] = self.holes(scanner, depth)
            else:
                self._known[offset] = None
        return self._known[offset]

    def hole_to_end(self, offset: int, previous: LogPoint, next_index: int) -> Hole:
        reach = self._reach
        point = reach.point
        return Hole(
            self._segment, offset, reach.offset, previous, next_index, point.position, b"", point, reach.next_index
        )

    def _missed(self, way: list[Hole]) -> tuple[int, int]:
        """Bytes that no chain proves, neither from before nor to the reach; and of these those of no good frame."""
        ends = [self._end if hole.end_offset is None else hole.end_offset for hole in way]
        return ends[-1] - way[0].offset, sum(end - hole.offset for end, hole in zip(ends, way, strict=True))

    def _candidates(self, offset: int, previous: LogPoint, next_index: int) -> Iterator[int]:
        """Where, behind the bad frame at ``offset``, a good one of this log may begin."""
        at = self._behind_header(offset, previous, next_index)
        while (found := self._data.find(_MAGIC, at - self._base)) >= 0:
            at = self._base + found
            if (at - FIRST_PAGE_BYTES) % 8 == 0 and self._may_follow(at, offset, previous, next_index):
                yield at
            at += 1

    def _behind_header(self, offset: int, previous: LogPoint, next_index: int) -> int:
        """The end of the bad frame where its header is good; else the first place behind its beginning."""
        try:
            header = self._header_at(offset)
            check_link(previous, next_index, header, self._data[offset - self._base :][:HEADER_BYTES])
        except DLedgerError:
            return offset + 1
        return offset + header.stored_bytes

    def _may_follow(self, at: int, offset: int, previous: LogPoint, next_index: int) -> bool:
        try:
            header = parse_frame(self._data, at - self._base).header
        except DLedgerError:
            return False
        missing = header.position - 1 - previous.position
        return (
            0 < missing <= (at - offset) // HEADER_BYTES
            and header.position <= self._reach.point.position
            and header.base_index >= next_index
            and previous.term <= header.term <= self._reach.point.term
        )

    def _header_at(self, offset: int) -> FrameHeader:
        return parse_header(self._data, offset - self._base)

    def _read(self, size_bytes: int, offset: int) -> bytes:
        return self._data[offset - self._base : offset - self._base + size_bytes]
