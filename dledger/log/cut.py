"""Removing the end of a log. A crash at any moment leaves the old end, or the new one, or something between them that
recovery reads as a log."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.common.types import LogPoint
from dledger.disk.disk import Disk
from dledger.disk.record import RecordKind, unpack_record
from dledger.disk.syncer import Handle
from dledger.log.segment.segment import TRAILER_BYTES, Segment, read_trailer, write_mark
from dledger.log.segment.segment_files import SegmentFiles

_CHUNK_BYTES = 1 << 20


def cut(
    files: SegmentFiles,
    segment: Segment,
    end_offset: int,
    point: LogPoint,
    *,
    unsynced: Sequence[Segment] = (),
    commit_hint: int,
) -> None:
    """Removes everything behind ``point``; the frame of ``point`` ends at ``end_offset`` of ``segment``. Blocks;
    durable after.

    In this order:

    1. The frames that stay become durable.
    2. The sync mark moves down. Else the zeros below the old mark would be taken for rot.
    3. Segments go, the last one first. Before one goes, the segment before it is unsealed, as a trailer says that
       another segment follows.
    4. The rest of ``segment`` is zeroed.
    """
    disk = files.disk
    for each in unsynced:
        disk.fdatasync(files.open(each))
    disk.fsync_directory(str(files.directory))
    handle = files.open(segment)
    write_mark(disk, segment, point, end_offset, commit_hint, clean=False)
    disk.fdatasync(handle)
    while files.active is not segment:
        files.unseal(files.segments[-2])
        files.remove(files.active)
    files.unseal(segment)
    handle = files.open(segment)
    zero(disk, handle, end_offset, segment.size_bytes)
    disk.fdatasync(handle)
    segment.end_offset = end_offset


def zero(disk: Disk, handle: Handle, start: int, end: int) -> None:
    """Writes zeros over all bytes that are not zero yet: room that was never written stays so."""
    for offset in range(start, end, _CHUNK_BYTES):
        chunk = disk.pread(handle, min(_CHUNK_BYTES, end - offset), offset)
        zeros = bytes(len(chunk))
        if chunk != zeros:
            disk.pwritev(handle, [zeros], offset)


def torn_bytes(disk: Disk, handle: Handle, start: int, size_bytes: int) -> int:
    """How many bytes there are from ``start`` to the last one that is not zero. 0 if a footer begins at ``start``, or
    if the file ends before it: neither is a torn frame."""
    if size_bytes <= start:
        return 0
    if read_trailer(disk, handle, size_bytes) is not None:
        size_bytes -= TRAILER_BYTES
    if unpack_record(RecordKind.FOOTER, disk.pread(handle, size_bytes - start, start)) is not None:
        return 0
    last = start
    for offset in range(start, size_bytes, _CHUNK_BYTES):
        chunk = disk.pread(handle, min(_CHUNK_BYTES, size_bytes - offset), offset).rstrip(b"\0")
        if chunk:
            last = offset + len(chunk)
    return last - start
