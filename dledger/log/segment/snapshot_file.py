"""The small state beside a segment: the state before its first frame.

The file holds it once, or twice. Two copies lie beside the first segment of a trimmed log, because the frames from
which it could be derived are gone. The second copy begins on a page of its own, so one bad sector or page leaves one of
them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from pathlib import Path

from dledger.common.errors import DLedgerError
from dledger.common.types import GENESIS
from dledger.disk.disk import FULL, Disk
from dledger.disk.patient_reader import PatientReader
from dledger.disk.record import Record, RecordKind, in_file, pack_record, unpack_record
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.segment.segment import TEMPORARY_SUFFIX, Segment

logger = logging.getLogger(__name__)

COPY_ALIGN_BYTES = 4096


def write_state(disk: Disk, path: str, encoded: bytes, *, twice: bool = False) -> None:
    """Durable when it returns: written to another name, synced, renamed. Raises OSError and leaves no room taken."""
    temporary = path + TEMPORARY_SUFFIX
    copies = [encoded, bytes(-len(encoded) % COPY_ALIGN_BYTES), encoded] if twice else [encoded]
    handle = disk.open(temporary, create=True)
    try:
        disk.ftruncate(handle, 0)
        disk.pwritev(handle, copies, 0)
        disk.fdatasync(handle)
        disk.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error counts; the next start removes the file
            disk.unlink(temporary)
        raise
    finally:
        disk.close(handle)
    disk.fsync_directory(str(Path(path).parent))


def good_copies(disk: Disk, path: str) -> list[Record]:
    """The good copies of the small state in the file ``path``; none if there is no such file. Blocks. Raises OSError.
    Raises EIO only if the device does not give a page back and no good copy is left."""
    if not disk.exists(path):
        return []
    handle = disk.open(path, read_only=True)
    try:
        read = PatientReader(disk, handle)
        stored = memoryview(read(disk.size(handle), 0))
    finally:
        disk.close(handle)
    with in_file(path):
        copies = [unpack_record(RecordKind.LOG_STATE, stored[at:]) for at in range(0, len(stored), COPY_ALIGN_BYTES)]
    good = [copy for copy in copies if copy is not None]
    if not good and read.failure is not None:
        raise read.failure
    return good


def _readable_copies(disk: Disk, path: str) -> list[Record]:
    """As ``good_copies``, but pages that the device does not give back count as rotten."""
    try:
        return good_copies(disk, path)
    except OSError as reason:
        if reason.errno != errno.EIO:
            raise
        logger.warning("a small state cannot be read", extra={"path": path, "why": str(reason)})
        return []


def _own(segment: Segment, copies: list[Record]) -> list[Record]:
    """The copies that belong to this segment."""
    return [copy for copy in copies if copy.sequence == segment.previous.position]


def has_good_state(disk: Disk, segment: Segment) -> bool:
    """Whether a small state lies beside the segment, belongs to it, and matches its checksum. (``read_state`` finds
    this out too, and decodes it.) Raises OSError, EIO if the device gives no copy back."""
    return bool(_own(segment, good_copies(disk, segment.state_path)))


def keep_twice(disk: Disk, segment: Segment) -> bool:
    """Sees to it that two good copies lie beside the segment, with which the log begins or is to begin. On a full disk
    one copy has to do. Returns whether there is any. Blocks. Raises OSError."""
    if segment.previous == GENESIS:
        return True  # nothing lies before it
    copies = _own(segment, _readable_copies(disk, segment.state_path))
    if len(copies) == 1:
        encoded = pack_record(RecordKind.LOG_STATE, *copies[0])
        try:
            write_state(disk, segment.state_path, encoded, twice=True)
        except OSError as reason:
            if reason.errno not in FULL:
                raise
            logger.warning("a small state has no room for its second copy", extra={"path": segment.state_path})
    return bool(copies)


def read_state(disk: Disk, segment: Segment, *, is_last: bool = False) -> LogSnapshot | None:
    """None when there is none, or none that is good and belongs to this segment: an older one does as well. If
    ``is_last`` there is no older one, and EIO is raised if the device gives no copy back."""
    read = good_copies if is_last else _readable_copies
    for copy in _own(segment, read(disk, segment.state_path)):
        try:
            state = LogSnapshot.read(copy)
        except DLedgerError as bad:
            logger.warning("a small state cannot be read", extra={"path": segment.state_path, "why": str(bad)})
            continue
        if state.last == segment.previous:
            return state
    if disk.exists(segment.state_path):
        logger.warning("no copy of a small state is good; an older one is used", extra={"path": segment.state_path})
    return None
