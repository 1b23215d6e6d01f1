"""Writing right frames back into a hole (damage.py).

Frames are right if and only if four conditions hold. Each frame links to the one before. Every checksum matches. They
lead from the point before the hole to the frame that follows it. They take exactly the room of the hole. Then they are,
byte for byte, the frames that were written there. A crash at any moment leaves a hole, which is found again, or none.

::

    … good frame │ hole: trimmed … ┊ … kept  │ next good frame …
                           log begins        └── what follows

If a hole reaches over the beginning of the log, no node has its trimmed part any more. The kept part follows the point
behind which the log begins. Its place is counted back from the end of the hole, and the frame that follows proves it. A
hole in the trimmed part is left, which is not missed.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Position, TrimPoint
from dledger.disk.disk import PAGE_BYTES, Disk
from dledger.disk.syncer import Handle
from dledger.log.frame.frame import HEADER_BYTES, Frame, check_link, parse_frames, parse_header
from dledger.log.segment.damage import Hole
from dledger.log.segment.segment import Segment, corrupt


def place(hole: Hole, behind: TrimPoint, frames: Sequence[Frame]) -> int:
    """The offset in the segment at which ``frames`` belong. ``behind`` is the point that they follow: the one before
    the hole, or the log's beginning within it. Their checksums were verified. Raises CORRUPT_LOG unless they are
    exactly what the hole lacks from there on."""
    previous, next_index = behind
    for frame in frames:
        check_link(previous, next_index, frame.header, frame.raw)
        previous, next_index = frame.header.point, frame.header.end_index
    if previous.position != hole.last:
        raise _unfit(hole, f"end at position {previous.position}")
    if hole.following:
        check_link(previous, next_index, parse_header(hole.following), hole.following)
    elif previous != hole.end or hole.end_index not in (None, next_index):
        raise _unfit(hole, "do not lead to where the segment ends")
    return _offset(hole, behind, sum(frame.header.stored_bytes for frame in frames))


def _offset(hole: Hole, behind: TrimPoint, size_bytes: int) -> int:
    trimmed = behind.point.position - hole.previous.position
    if not trimmed:
        offset = hole.offset
    elif hole.end_offset is not None:
        offset = hole.end_offset - size_bytes
    else:
        raise _unfit(hole, "have no place: what lies before them was trimmed, and nothing lies behind")
    if hole.end_offset not in (None, offset + size_bytes) or offset < hole.offset + trimmed * HEADER_BYTES:
        raise _unfit(hole, f"take {size_bytes} bytes")
    return offset


def left_of(hole: Hole, offset: int, first: Frame) -> list[Hole]:
    """The part of ``hole`` that still lacks its frames when all is good from ``offset`` on; ``first`` begins there."""
    if offset == hole.offset:
        return []
    last, head = Position(first.header.position - 1), bytes(first.raw[:HEADER_BYTES])
    return [hole._replace(end_offset=offset, last=last, following=head, end=None, end_index=first.header.base_index)]


def write_back(disk: Disk, hole: Hole, offset: int, frames: Sequence[Frame]) -> None:
    """Writes ``frames`` at ``offset``, where they have their place, durably, and reads them back from the device.
    Blocks.

    By a handle of its own: an error of the device is told to each handle, and a group commit must hear of it too.
    Raises CORRUPT_LOG if the device takes nothing there, or gives back other bytes than it was given. Raises OSError
    for other failures.
    """
    raw = b"".join(frame.raw for frame in frames)
    handle = disk.open(hole.segment.path)
    try:
        _write(disk, handle, hole.segment, raw, offset)
        disk.fdatasync(handle)
        disk.drop_cache(handle)
        stored = disk.pread(handle, len(raw), offset)
    finally:
        disk.close(handle)
    if stored != raw:
        raise corrupt(hole.segment.path, offset, "what was written back is not what is read")
    parse_frames(stored)


def _write(disk: Disk, handle: Handle, segment: Segment, raw: bytes, offset: int) -> None:
    """Writes ``raw``. The device takes an unreadable page only as a whole. If the frames end within such a page of a
    sealed segment, zeros replace the part of the footer in it. The footer is built again from the frames. In an
    unsealed segment that part may be in use, so nothing is written. Raises CORRUPT_LOG if the device takes nothing
    there."""
    try:
        _write_whole_pages(disk, handle, segment, raw, offset)
    except OSError as reason:
        if reason.errno != errno.EIO:
            raise
        raise corrupt(segment.path, offset, f"the device takes no frames there ({reason.strerror})") from reason


def _write_whole_pages(disk: Disk, handle: Handle, segment: Segment, raw: bytes, offset: int) -> None:
    try:
        disk.pwritev(handle, [raw], offset)
    except OSError:
        lost_bytes = _lost_of_footer(disk, handle, segment, offset + len(raw))
        if not lost_bytes:
            raise
        disk.pwritev(handle, [raw, bytes(lost_bytes)], offset)


def _lost_of_footer(disk: Disk, handle: Handle, segment: Segment, end: int) -> int:
    """How many bytes of the footer share a page with the frames that end at ``end``, and cannot be read either."""
    rest_bytes = min(-end % PAGE_BYTES, disk.size(handle) - end)
    if not segment.sealed or end != segment.end_offset or rest_bytes <= 0:
        return 0
    try:
        disk.pread(handle, rest_bytes, end)
    except OSError:
        return rest_bytes
    return 0


def _unfit(hole: Hole, what: str) -> DLedgerError:
    return error(
        Code.CORRUPT_LOG,
        f"frames {hole.first} to {hole.last} were to be repaired with frames that {what}: they are not the ones",
    )
