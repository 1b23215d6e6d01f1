"""Every frame that anybody ever appended, and those that are committed: what all logs are held against.

A frame's chain names everything before it, so one point that two logs share stands for all that lies below.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from dledger.common.types import GENESIS, LogPoint, Member, Position, Term, TrimPoint
from dledger.group.replica import Replica
from dledger.log.frame.control import check_control, members_of, trim_of
from dledger.log.frame.frame import ControlKind, Frame, FrameHeader
from tests.simulation.violation import Violation


class Fact(NamedTuple):
    """One frame: where it stands, behind which one, and what its header says."""

    point: LogPoint
    previous: LogPoint
    header: FrameHeader


class Chronicle:
    def __init__(self) -> None:
        self._facts: dict[tuple[int, int], Fact] = {}
        self._tried: dict[LogPoint, Fact] = {}
        """What was being written when the power went, perhaps."""
        self._members: dict[LogPoint, tuple[Member, ...]] = {}
        self.committed: list[LogPoint] = []
        """By position − 1."""
        self.committed_index = -1
        """Of the last committed record."""
        self._trims: dict[LogPoint, TrimPoint] = {}
        self.committed_trims: set[TrimPoint] = set()
        self.trimmed_to = 0
        """The first index that committed trims leave."""
        self._headers: list[FrameHeader] = []
        """Of the committed frames that hold records."""
        self._sequences: dict[tuple[int, int], int] = {}
        self._last_timestamp_ms = 0

    @property
    def commit_position(self) -> Position:
        return Position(len(self.committed))

    def trying(self, frame: Frame, previous: LogPoint) -> Fact:
        """It is about to be written; whether it is there after a power cut, nobody knows."""
        header = frame.header
        fact = Fact(header.point, previous, header)
        self._tried[fact.point] = fact
        if not header.count and header.attributes == ControlKind.MEMBERSHIP:
            self._members[fact.point] = members_of(check_control(frame).members)
        elif not header.count and header.attributes == ControlKind.TRIM:
            self._trims[fact.point] = trim_of(check_control(frame).trim)
        return fact

    def refused(self, fact: Fact) -> None:
        """It was not written, and is not there."""
        self._tried.pop(fact.point, None)

    def appended(self, node: str, fact: Fact) -> None:
        """Log matching: under one (position, term) stands one frame, behind one other, in every log."""
        self._tried.pop(fact.point, None)
        known = self._facts.setdefault((fact.point.position, fact.point.term), fact)
        if known.point != fact.point or known.previous != fact.previous:
            raise Violation(
                "log matching",
                f"{node} holds {fact.point} behind {fact.previous}, {known.point} stood behind {known.previous}",
            )

    def point(self, position: int, term: int) -> LogPoint:
        """Of the frame ``position`` of ``term``, which somebody appended."""
        if not position:
            return GENESIS
        fact = self._facts.get((position, term))
        if fact is None:
            raise Violation("what is there was appended", f"nobody ever appended a frame {position} of term {term}")
        return fact.point

    def found(self, node: str, last: LogPoint) -> None:
        """A log that was opened ends at ``last``."""
        point = last
        while (fact := self._tried.get(point)) is not None:
            self.appended(node, fact)
            point = fact.previous
        if last != self.point(last.position, last.term):
            raise Violation("log matching", f"{node} came back with {last}, which nobody appended")

    def commit(self, node: str, last: LogPoint) -> list[Fact]:
        """``node`` takes ``last``, and all below it, for committed. Returns what is so for the first time."""
        if last.position <= self.commit_position:
            known = self.committed[last.position - 1] if last.position else GENESIS
            if known != last:
                raise Violation("state machine safety", f"{node} committed {last}, {known} was committed before")
            return []
        news: list[Fact] = []
        point = last
        while point.position > self.commit_position:
            fact = self._facts[point.position, point.term]
            news.append(fact)
            point = fact.previous
        known = self.committed[-1] if self.committed else GENESIS
        if point != known:
            raise Violation("state machine safety", f"{node} committed {last} behind {point}, but {known} is committed")
        news.reverse()
        for fact in news:
            self._take(fact)
        return news

    def _take(self, fact: Fact) -> None:
        header = fact.header
        if header.base_index != self.committed_index + 1:
            raise Violation("contiguous indexes", f"{fact.point} begins at {header.base_index}")
        if header.timestamp_ms < self._last_timestamp_ms:
            raise Violation("time does not run back", f"{fact.point} is of {header.timestamp_ms}")
        if header.count and header.producer_id:
            key = header.producer_id, header.producer_epoch
            expected = self._sequences.get(key, 0)
            if header.base_sequence != expected:
                raise Violation(
                    "each sequence once", f"{fact.point}: producer {key} at {header.base_sequence}, not {expected}"
                )
            self._sequences[key] = expected + header.count
        if header.count:
            self._headers.append(header)
        if (trim := self.trim(fact.point)) is not None:
            self.committed_trims.add(trim)
            self.trimmed_to = max(self.trimmed_to, trim.first_index)
        self._last_timestamp_ms = header.timestamp_ms
        self.committed_index += header.count
        self.committed.append(fact.point)

    def frame_of(self, index: int) -> FrameHeader | None:
        """The committed frame that holds record ``index``."""
        at = bisect_right(self._headers, index, key=lambda header: header.base_index) - 1
        return self._headers[at] if at >= 0 and index < self._headers[at].end_index else None

    def committed_below(self, point: LogPoint) -> Position:
        """How far a log that holds ``point`` is of what is committed."""
        while point.position and not self.is_committed(point.position, point.term):
            fact = self._facts.get((point.position, point.term))
            if fact is None:
                return Position(0)
            point = fact.previous
        return point.position

    def members(self, point: LogPoint) -> tuple[Member, ...] | None:
        """What a MEMBERSHIP frame says; None for another one."""
        return self._members.get(point)

    def trim(self, point: LogPoint) -> TrimPoint | None:
        """What a TRIM frame says; None for another one."""
        return self._trims.get(point)

    def timestamp_ms(self, position: Position) -> int:
        """Of a committed frame."""
        point = self.committed[position - 1]
        return self._facts[point.position, point.term].header.timestamp_ms

    def is_committed(self, position: Position, term: Term) -> bool:
        return 0 < position <= self.commit_position and self.committed[position - 1].term == term


def holds(replica: Replica, point: LogPoint) -> bool:
    """Whether the frame at ``point`` is, or was before a trim, in this node's log."""
    log = replica.log
    if log.state.start.position <= point.position <= log.last.position:
        return log.term_at(point.position) == point.term
    return point.position < log.state.start.position
