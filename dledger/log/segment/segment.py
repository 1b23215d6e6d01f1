"""A segment: one file of consecutive frames, named by the first index and the first position that it can hold.

::

    {base_index:020}-{base_position:020}.log      the frames
    {base_index:020}-{base_position:020}.state    the log's small state before them (log_state.py, state_file.py)

The index alone would not do: a segment that got control frames only takes no index. The file::

    offset     field
    0          first page, 4096 bytes; each part is a record (record.py) in a sector of 512 bytes of its own:
      0          header       written once, when the segment is taken into use
      512        sync mark    with an even sequence
      1024       commit hint
      1536       sync mark    with an odd sequence
    2048       origin       written once, durably, if ever: the log begins here, segments before are leftovers
    4096       frames, one behind the other, each a multiple of 8 bytes
    …          zeros up to the end of the file, while frames are still written
    …          once sealed instead: the footer (index.py) and the trailer, up to the end of the file

    header       u32 format version | u32 0 | u64 base_index | u64 base_position
                 | u64 term and u64 chain of the point before | group, UTF-8
    sync mark    u64 position | u64 offset | u64 term | u64 chain | u32 clean | u32 0
                 everything up to this frame, which ends at offset, is durable, here and in all segments before;
                 clean: the log was closed at this point
    commit hint  u64 position
    origin       u64 position before the segment's first frame
    trailer      u64 footer offset | u64 last position | u64 next index | u64 term and u64 chain of the last frame
                 | u64 its timestamp_ms
                 72 bytes with the record's header; it says too that the next segment is durable

A mark goes to the sector that the previous mark does not use, and never shares a write with it. So a torn write leaves
one of the two good. If both were written and neither is good, that is rot. The hint between them is written along with
either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from dledger.common.errors import Code, CorruptLog, DLedgerError, NewerFormat, error
from dledger.common.types import LogPoint, Position, Term
from dledger.disk.disk import Disk
from dledger.disk.record import READMIT, RECORD_HEADER_BYTES, RecordKind, pack_record, unpack_record
from dledger.disk.syncer import Handle
from dledger.log.segment.index import SparseIndex

FORMAT_VERSION = 1
"""The version of what this program writes into a segment. It rises whenever the version of a frame or a record does. A
segment holds nothing newer than its header says, so a program never goes on in a segment of an older version
(``Segment.is_outdated``)."""
FIRST_PAGE_BYTES = 4096
SECTOR_BYTES = 512
PREPARED_SUFFIX = ".prepared"
TEMPORARY_SUFFIX = ".tmp"
SEGMENT_SUFFIX = ".log"
STATE_SUFFIX = ".state"

_HINT_OFFSET = 2 * SECTOR_BYTES
_MARK_OFFSETS = (1 * SECTOR_BYTES, 3 * SECTOR_BYTES)
_ORIGIN_OFFSET = 4 * SECTOR_BYTES
_HEADER = Struct("<IIQQQQ")
_MARK = Struct("<QQQQII")
_HINT = Struct("<Q")
_ORIGIN = Struct("<Q")
_TRAILER = Struct("<QQQQQQ")
TRAILER_BYTES = RECORD_HEADER_BYTES + _TRAILER.size
_NAME = re.compile(r"(\d{20})-(\d{20})\.(log|state)")


class SegmentName(NamedTuple):
    """Orders segments: by position, and so by index too."""

    base_position: int
    base_index: int

    def file(self, suffix: str) -> str:
        return f"{self.base_index:020}-{self.base_position:020}{suffix}"


def parse_name(name: str) -> SegmentName | None:
    """None for a file that is neither a segment nor a small state."""
    match = _NAME.fullmatch(name)
    return SegmentName(int(match[2]), int(match[1])) if match else None


class SegmentHeader(NamedTuple):
    """What the first sector says. ``previous`` is the point before the segment's first frame."""

    group: str
    base_index: int
    previous: LogPoint
    is_outdated: bool = False
    """It was written in an earlier format version than this program's."""

    @property
    def name(self) -> SegmentName:
        return SegmentName(self.previous.position + 1, self.base_index)


class SyncMark(NamedTuple):
    """Everything up to ``point`` is durable; its frame ends at ``offset``."""

    sequence: int
    point: LogPoint
    offset: int
    clean: bool


class Trailer(NamedTuple):
    """What the end of a sealed segment says."""

    footer_offset: int
    next_index: int
    last: LogPoint
    last_timestamp_ms: int


@dataclass(slots=True, eq=False)
class Segment:
    """One segment as the open log knows it.

    Invariants: frames lie in [FIRST_PAGE_BYTES, ``end_offset``); ``end_offset`` <= ``size_bytes``. ``index`` is at hand
    while frames are written and later on demand.
    """

    name: SegmentName
    path: str
    previous: LogPoint
    size_bytes: int
    end_offset: int = FIRST_PAGE_BYTES
    frames: int = 0
    sealed: bool = False
    last_timestamp_ms: int = 0
    """Of the last frame, once sealed."""
    is_outdated: bool = False
    """Its header says an earlier format version than this program writes: no frame is added to it."""
    has_state: bool = False
    """The small state before the first frame lies beside it."""
    gone: bool = False
    """Its file was, or is being, removed; a reader that has it pinned may still read it."""
    mark_sequence: int = 0
    ahead_offset: int = 0
    """How far the kernel was asked to read ahead of a sequential reader; 0: there is none."""
    index: SparseIndex | None = None
    handle: Handle | None = None
    pins: int = 0
    """Uses of ``handle`` in flight: it is closed by the last one when ``closing``."""
    closing: bool = False

    @property
    def newest_timestamp_ms(self) -> int:
        """Of the last frame, once another segment follows."""
        # Without room for its footer it is not sealed, and keeps its index at hand.
        return self.last_timestamp_ms if self.sealed or self.index is None else self.index.last_timestamp_ms

    @property
    def is_empty(self) -> bool:
        return self.end_offset == FIRST_PAGE_BYTES

    @property
    def state_path(self) -> str:
        return self.path.removesuffix(SEGMENT_SUFFIX) + STATE_SUFFIX


def pack_first_page(header: SegmentHeader, commit_hint: int, *, origin: bool = False) -> bytes:
    """Header and hint; no mark yet. ``origin``: the log begins with this segment."""
    page = bytearray(FIRST_PAGE_BYTES)
    _put(page, 0, _pack_header(header))
    _put(page, _HINT_OFFSET, pack_record(RecordKind.COMMIT_HINT, 0, _HINT.pack(commit_hint)))
    if origin:
        _put(page, _ORIGIN_OFFSET, _pack_origin(header.previous.position))
    return bytes(page)


def _pack_header(header: SegmentHeader) -> bytes:
    payload = _HEADER.pack(
        FORMAT_VERSION,
        0,
        header.base_index,
        header.previous.position + 1,
        header.previous.term,
        header.previous.chain,
    )
    return pack_record(RecordKind.SEGMENT_HEADER, 0, payload + header.group.encode())


def write_header(disk: Disk, path: str, header: SegmentHeader) -> None:
    """Over a bad one, durably; the rest of the page stays."""
    handle = disk.open(path)
    try:
        disk.pwritev(handle, [_sector(_pack_header(header))], 0)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)


def _pack_origin(position: int) -> bytes:
    return pack_record(RecordKind.ORIGIN, 0, _ORIGIN.pack(position))


def write_origin(disk: Disk, segment: Segment) -> None:
    """Writes, durably, that the log begins with this segment. The segment itself is durable already.

    By a handle of its own: an error of the device is told to each handle, and a group commit must hear of it too.
    """
    handle = disk.open(segment.path)
    try:
        disk.pwritev(handle, [_sector(_pack_origin(segment.previous.position))], _ORIGIN_OFFSET)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)


def is_origin(page: bytes, previous: LogPoint) -> bool:
    """Whether the log begins with the segment of this first page."""
    record = unpack_record(RecordKind.ORIGIN, page[_ORIGIN_OFFSET : _ORIGIN_OFFSET + SECTOR_BYTES])
    return record is not None and record.payload == _ORIGIN.pack(previous.position)


def _put(page: bytearray, offset: int, record: bytes) -> None:
    assert len(record) <= SECTOR_BYTES, "a record outgrew its sector"
    page[offset : offset + len(record)] = record


def unpack_header(page: bytes) -> SegmentHeader | None:
    """None when the first sector has no good header. Raises ``NewerFormat`` for one of a later format."""
    record = unpack_record(RecordKind.SEGMENT_HEADER, page[:SECTOR_BYTES])
    if record is None:
        return None
    try:
        version, _, base_index, base_position, term, chain = _HEADER.unpack_from(record.payload)
    except struct_error:
        return None
    if version > FORMAT_VERSION:
        raise NewerFormat("segment", version, FORMAT_VERSION)
    group = record.payload[_HEADER.size :].decode()
    previous = LogPoint(Position(base_position - 1), Term(term), chain)
    return SegmentHeader(group, base_index, previous, is_outdated=version < FORMAT_VERSION)


def unpack_mark(page: bytes) -> SyncMark | None:
    """The newer good one of the two marks; None when there is none."""
    marks = []
    for offset in _MARK_OFFSETS:
        record = unpack_record(RecordKind.SYNC_MARK, page[offset : offset + SECTOR_BYTES])
        if record is not None and len(record.payload) == _MARK.size:
            position, end_offset, term, chain, clean, _ = _MARK.unpack(record.payload)
            point = LogPoint(Position(position), Term(term), chain)
            marks.append(SyncMark(record.sequence, point, end_offset, bool(clean)))
    return max(marks, default=None)


def marks_are_rotten(page: bytes) -> bool:
    """Whether both marks were written, and neither is good. No crash does that: it tears the newest one, if any."""
    sectors = [page[offset : offset + SECTOR_BYTES] for offset in _MARK_OFFSETS]
    return all(any(sector) and unpack_record(RecordKind.SYNC_MARK, sector) is None for sector in sectors)


def unpack_hint(page: bytes) -> int | None:
    record = unpack_record(RecordKind.COMMIT_HINT, page[_HINT_OFFSET : _HINT_OFFSET + SECTOR_BYTES])
    return int(_HINT.unpack(record.payload)[0]) if record is not None else None


def write_mark(disk: Disk, segment: Segment, point: LogPoint, offset: int, commit_hint: int, *, clean: bool) -> None:
    """Writes the next mark, and the hint beside it, in one write; the caller syncs."""
    assert segment.handle is not None
    assert point.position >= segment.previous.position, "a mark belongs to the segment it points into"
    segment.mark_sequence += 1
    payload = _MARK.pack(point.position, offset, point.term, point.chain, clean, 0)
    mark = _sector(pack_record(RecordKind.SYNC_MARK, segment.mark_sequence, payload))
    hint = _sector(pack_record(RecordKind.COMMIT_HINT, 0, _HINT.pack(commit_hint)))
    if segment.mark_sequence % 2 == 0:
        disk.pwritev(segment.handle, [mark, hint], _MARK_OFFSETS[0])
    else:
        disk.pwritev(segment.handle, [hint, mark], _HINT_OFFSET)


def _sector(record: bytes) -> bytes:
    return record + bytes(SECTOR_BYTES - len(record))


def read_trailer(disk: Disk, handle: Handle, size_bytes: int) -> Trailer | None:
    """None when the segment is not sealed."""
    if size_bytes < FIRST_PAGE_BYTES + TRAILER_BYTES:
        return None
    record = unpack_record(RecordKind.TRAILER, disk.pread(handle, TRAILER_BYTES, size_bytes - TRAILER_BYTES))
    if record is None or len(record.payload) != _TRAILER.size:
        return None
    footer_offset, position, next_index, term, chain, timestamp_ms = _TRAILER.unpack(record.payload)
    return Trailer(footer_offset, next_index, LogPoint(Position(position), Term(term), chain), timestamp_ms)


def read_footer(disk: Disk, handle: Handle, size_bytes: int, trailer: Trailer) -> SparseIndex | None:
    """None when the footer does not match its checksum: it is built again from the frames."""
    stored = disk.pread(handle, size_bytes - TRAILER_BYTES - trailer.footer_offset, trailer.footer_offset)
    record = unpack_record(RecordKind.FOOTER, stored)
    return SparseIndex.decode(record.payload) if record is not None else None


def seal(disk: Disk, segment: Segment, index: SparseIndex, next_index: int, last: LogPoint) -> int:
    """Gives the segment its footer and trailer, durably, and the room behind back; returns the file's new size.

    Only after the frames, the next segment and the directory are durable: the trailer says so.
    """
    assert segment.handle is not None
    footer = pack_record(RecordKind.FOOTER, last.position, index.encode())
    timestamp_ms = index.last_timestamp_ms
    payload = _TRAILER.pack(segment.end_offset, last.position, next_index, last.term, last.chain, timestamp_ms)
    trailer = pack_record(RecordKind.TRAILER, last.position, payload)
    size_bytes = segment.end_offset + len(footer) + len(trailer)
    disk.pwritev(segment.handle, [footer, trailer], segment.end_offset)
    disk.ftruncate(segment.handle, size_bytes)
    disk.fdatasync(segment.handle)
    return size_bytes


def unseal(disk: Disk, segment: Segment) -> None:
    """Takes the trailer's promise back, durably: the next segment may be removed then."""
    assert segment.handle is not None
    size_bytes = disk.size(segment.handle)
    if read_trailer(disk, segment.handle, size_bytes) is not None:
        disk.pwritev(segment.handle, [bytes(TRAILER_BYTES)], size_bytes - TRAILER_BYTES)
        disk.fdatasync(segment.handle)
    segment.sealed = False


class Unreadable(CorruptLog):
    """The device does not give the bytes there back. They may be lost like rotten bytes, and are repaired in the same
    way."""

    def __init__(self, path: str, offset: int, reason: OSError) -> None:
        message = f"{path} cannot be read at offset {offset} ({reason.strerror}): see to the disk"
        super().__init__(message, metadata={"file": path, "offset": str(offset)})
        self.reason = reason


def corrupt(path: str, offset: int, reason: str | DLedgerError) -> DLedgerError:
    """CORRUPT_LOG that names the place."""
    message = f"{path} is damaged at offset {offset}: {reason}; nothing was changed; {READMIT}"
    return error(Code.CORRUPT_LOG, message, file=path, offset=offset, reason=str(reason))
