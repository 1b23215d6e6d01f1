"""What a power cut at this instant would leave of a node: asked of the platter, never of the node."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from dledger.common.types import NodeId, Position, Term
from dledger.disk.record import RecordKind, unpack_record
from dledger.disk.two_slot import SLOT_BYTES
from dledger.group.group_record import GROUP_RECORD_SLOT_BYTES
from dledger.group.hard_state import HardState
from dledger.log.file_log import FileLog
from dledger.log.frame.frame import Frame, parse_header
from dledger.log.segment.segment import (
    FIRST_PAGE_BYTES,
    SECTOR_BYTES,
    SEGMENT_SUFFIX,
    STATE_SUFFIX,
    is_origin,
    parse_name,
    unpack_header,
    unpack_mark,
)
from dledger.log.segment.snapshot_file import COPY_ALIGN_BYTES
from dledger.node.identity import IDENTITY_SLOT_BYTES
from dledger.node.peer_book import PEER_BOOK_SLOT_BYTES
from dledger.v1.storage_pb2 import GroupRecord, HardStateRecord, IdentityRecord, PeerBookRecord
from tests.simulation.platter import Platter, SimFile

FRAME_MAGIC = b"DLF"


class _Stored(NamedTuple):
    position: int
    path: str
    file: SimFile
    begin: int
    end: int


class LogTruth:
    """Which frames of one life's log are on the medium, under a name that is; of one that does not sync before it
    acknowledges, which were written."""

    def __init__(self, platter: Platter, log: FileLog, *, is_synced: bool = True) -> None:
        self._is_synced = is_synced
        self._platter = platter
        self._log = log
        self._unproven: deque[_Stored] = deque()
        self._proven = Position(0)

    def is_all_there(self, rotten: Collection[str] = ()) -> bool:
        """After a start: the node says that everything it found is durable. But for ``rotten`` files, by path: a repair
        that a kill cut short is in the cache alone, and what it mended is found again."""
        segments = self._log._files.segments if self._is_synced else []
        for segment in segments:
            if segment.path in rotten:
                continue
            file = self._platter.durable(segment.path)
            if file is None or not file.holds(0, SECTOR_BYTES) or not file.holds(FIRST_PAGE_BYTES, segment.end_offset):
                return False
        self._proven = self._log.last.position
        return True

    def appended(self, frames: Sequence[Frame], end_before: tuple[str, int]) -> None:
        """``end_before``: the active segment's path, and where it ended, before they were written."""
        path, offset = end_before
        for frame in frames:
            header = frame.header
            segment = self._log._files.by_position(header.position)
            if segment.path != path:
                path, offset = segment.path, FIRST_PAGE_BYTES
            end = offset + header.stored_bytes
            self._unproven.append(_Stored(header.position, path, self._platter.find(path), offset, end))
            offset = end

    def cut(self, after: Position) -> None:
        self._proven = min(self._proven, after)
        while self._unproven and self._unproven[-1].position > after:
            self._unproven.pop()

    def begun_anew(self) -> None:
        self._unproven.clear()
        self._proven = self._log.last.position

    def holds(self, position: Position) -> bool:
        """Everything up to ``position`` would be there after a power cut, or a kill where nothing is synced."""
        if not self._is_synced:
            return position <= self._log.last.position
        unproven = self._unproven
        while unproven and unproven[0].position <= position:
            if not self._is_there(unproven[0]):
                return False
            self._proven = Position(unproven.popleft().position)
        return position <= max(self._proven, self._log.state.start.position)

    def _is_there(self, stored: _Stored) -> bool:
        if stored.position <= self._log.state.start.position:
            return True
        file = stored.file
        if self._platter.durable(stored.path) is not file or not file.holds(stored.begin, stored.end):
            return False
        return stored.begin > FIRST_PAGE_BYTES or file.holds(0, SECTOR_BYTES)


def promised(platter: Platter, path: str) -> HardState:
    """Term and vote that a start after a power cut would find."""
    record = HardStateRecord.FromString(_durable_payload(platter, path, RecordKind.HARD_STATE, SLOT_BYTES))
    return HardState(Term(record.term), NodeId(record.vote))


def group_record(platter: Platter, path: str) -> GroupRecord:
    """What a start after a power cut would know of the debts of a group."""
    payload = _durable_payload(platter, path, RecordKind.GROUP, GROUP_RECORD_SLOT_BYTES)
    return GroupRecord.FromString(payload)


def has_mark(platter: Platter, path: str) -> bool:
    """Whether ``path`` is a segment with a sync mark that a power cut now would leave."""
    file = platter.durable(path) if path.endswith(SEGMENT_SUFFIX) else None
    return file is not None and unpack_mark(bytes(file.medium[:FIRST_PAGE_BYTES])) is not None


def end_of(segment: bytes, was_there: Sequence[tuple[int, bytes]], position: Position) -> int:
    """Where in ``segment`` the frame at ``position`` ends, or the last one before it. ``was_there``: what stood, and at
    which offsets, where it is rotten now."""
    whole = bytearray(segment)
    for offset, good in reversed(was_there):  # the first to rot knew it best
        whole[offset : offset + len(good)] = good
    up_to_it = takewhile(lambda frame: frame[0] <= position, stored_frames(whole))
    return max((end for _, _, end in up_to_it), default=FIRST_PAGE_BYTES)


def stored_frames(segment: bytes | bytearray) -> Iterator[tuple[Position, int, int]]:
    """Each one's position, and where in ``segment`` it begins and ends."""
    begin = FIRST_PAGE_BYTES
    while segment.startswith(FRAME_MAGIC, begin):
        header = parse_header(segment, begin)
        end = begin + header.stored_bytes
        yield Position(header.position), begin, end
        begin = end


def beginning(platter: Platter, directory: str) -> list[tuple[str, bool]]:
    """The small states that the log in ``directory`` may begin with, when it was trimmed, by path, and whether any copy
    of each is good: that beside the first segment, and that beside any that says of itself that the log begins there.
    """
    found: list[tuple[str, bool]] = []
    for name, path in sorted(
        (name, path) for path in platter.paths(directory) if (name := parse_name(path.rpartition("/")[2]))
    ):
        if path.endswith(SEGMENT_SUFFIX) and name.base_position > 1:
            page = bytes(platter.find(path).data[:FIRST_PAGE_BYTES])
            header = unpack_header(page)
            is_first = not found
            if is_first or header is None or is_origin(page, header.previous):
                state_path = path.removesuffix(SEGMENT_SUFFIX) + STATE_SUFFIX
                found.append((state_path, _has_good_copy(platter, state_path)))
    return found


def _has_good_copy(platter: Platter, path: str) -> bool:
    stored = bytes(platter.find(path).data) if platter.exists(path) else b""
    starts = range(0, len(stored), COPY_ALIGN_BYTES)
    return any(unpack_record(RecordKind.LOG_STATE, stored[at:]) is not None for at in starts)


def known_disk(platter: Platter, path: str, group: str, peer: NodeId) -> tuple[bytes, int]:
    """The disk of ``peer`` that a start after a power cut would know of in ``group``, and the newest start of it;
    b"": none."""
    payload = _durable_payload(platter, path, RecordKind.PEER_BOOK, PEER_BOOK_SLOT_BYTES)
    book = PeerBookRecord.FromString(payload)
    for number in (number for each in book.groups if each.group == group for number in each.numbers):
        if book.peers[number].node_id == peer:
            return book.peers[number].node_uuid, book.peers[number].start_count
    return b"", 0


def removed_groups(platter: Platter, path: str) -> Collection[str]:
    """Which groups a start after a power cut would know to be removed for good."""
    payload = _durable_payload(platter, path, RecordKind.IDENTITY, IDENTITY_SLOT_BYTES)
    return IdentityRecord.FromString(payload).removed_groups


def dropped_groups(platter: Platter, path: str) -> Collection[str]:
    """Of which groups a start after a power cut would know that the node gave up its files."""
    payload = _durable_payload(platter, path, RecordKind.IDENTITY, IDENTITY_SLOT_BYTES)
    return IdentityRecord.FromString(payload).dropped_groups


def _durable_payload(platter: Platter, path: str, kind: RecordKind, slot_bytes: int) -> bytes:
    """The newer of two slots; b"" where neither is good."""
    file = platter.durable(path)
    medium = bytes(file.medium[: 2 * slot_bytes]) if file is not None else b""
    slots = [unpack_record(kind, medium[at : at + slot_bytes]) for at in (0, slot_bytes)]
    good = [slot for slot in slots if slot is not None]
    return max(good).payload if good else b""
