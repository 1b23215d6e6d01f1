"""Writing right frames back into a hole (damage.py).

Frames are right iff they lead, each linked to the one before and every checksum matching, from the point before the
hole to what follows it, and take exactly its room: then they are, byte for byte, what was written there. A crash at any
moment leaves a hole, which is found again, or none.
"""

from __future__ import annotations

from collections.abc import Sequence

from dledger.errors import Code, DLedgerError, error
from dledger.storage.damage import Hole
from dledger.storage.disk import Disk
from dledger.storage.frame import Frame, check_link, parse_frames, parse_header
from dledger.storage.segment import corrupt


def check_fit(hole: Hole, frames: Sequence[Frame]) -> None:
    """Raises CORRUPT_LOG unless ``frames``, whose checksums were verified, are what the hole lacks."""
    previous, next_index = hole.previous, hole.next_index
    for frame in frames:
        check_link(previous, next_index, frame.header, frame.raw)
        previous, next_index = frame.header.point, frame.header.end_index
    if previous.position != hole.last:
        raise _unfit(hole, f"end at position {previous.position}")
    if hole.following:
        check_link(previous, next_index, parse_header(hole.following), hole.following)
    elif previous != hole.end or hole.end_index not in (None, next_index):
        raise _unfit(hole, "do not lead to where the segment ends")
    size_bytes = sum(frame.header.stored_bytes for frame in frames)
    if hole.end_offset not in (None, hole.offset + size_bytes):
        raise _unfit(hole, f"take {size_bytes} bytes")


def write_back(disk: Disk, hole: Hole, frames: Sequence[Frame]) -> None:
    """Writes ``frames`` where they belong, durably, and reads them back from the device. Blocks.

    By a handle of its own: an error of the device is told to each handle, and a group commit must hear of it too.
    Raises CORRUPT_LOG for frames that do not fit (nothing is written then) and where the device does not give back what
    it was given, and OSError.
    """
    check_fit(hole, frames)
    raw = b"".join(frame.raw for frame in frames)
    handle = disk.open(hole.segment.path)
    try:
        disk.pwritev(handle, [raw], hole.offset)
        disk.fdatasync(handle)
        disk.drop_cache(handle)
        stored = disk.pread(handle, len(raw), hole.offset)
    finally:
        disk.close(handle)
    if stored != raw:
        raise corrupt(hole.segment.path, hole.offset, "what was written back is not what is read")
    parse_frames(stored)


def _unfit(hole: Hole, what: str) -> DLedgerError:
    return error(
        Code.CORRUPT_LOG,
        f"frames {hole.first} to {hole.last} were to be repaired with frames that {what}: they are not the ones",
    )
