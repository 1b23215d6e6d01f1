"""The small state beside a segment: the state before its first frame."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from dledger.errors import DLedgerError
from dledger.storage.disk import Disk
from dledger.storage.log_state import LogState
from dledger.storage.record import RecordKind, unpack_record
from dledger.storage.segment import TEMPORARY_SUFFIX, Segment

logger = logging.getLogger(__name__)


def write_state(disk: Disk, path: str, encoded: bytes) -> None:
    """Durable when it returns: written to another name, synced, renamed. Raises OSError and leaves no room taken."""
    temporary = path + TEMPORARY_SUFFIX
    handle = disk.open(temporary, create=True)
    try:
        disk.ftruncate(handle, 0)
        disk.pwritev(handle, [encoded], 0)
        disk.fdatasync(handle)
        disk.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error counts; the next start removes the file
            disk.unlink(temporary)
        raise
    finally:
        disk.close(handle)
    disk.fsync_directory(str(Path(path).parent))


def has_good_state(disk: Disk, segment: Segment) -> bool:
    """Whether a small state lies beside the segment that belongs to it and matches its checksum: what ``read_state``
    finds out too, decoding it."""
    if not disk.exists(segment.state_path):
        return False
    handle = disk.open(segment.state_path, read_only=True)
    try:
        stored = unpack_record(RecordKind.LOG_STATE, disk.pread(handle, disk.size(handle), 0))
    finally:
        disk.close(handle)
    return stored is not None and stored.sequence == segment.previous.position


def read_state(disk: Disk, segment: Segment) -> LogState | None:
    """None when there is none, or none that is good and belongs to this segment: an older one does as well."""
    if not disk.exists(segment.state_path):
        return None
    handle = disk.open(segment.state_path, read_only=True)
    try:
        state = LogState.decode(disk.pread(handle, disk.size(handle), 0))
    except DLedgerError as bad:
        logger.warning("a small state is damaged; an older one is used", extra={"path": segment.path, "why": str(bad)})
        return None
    finally:
        disk.close(handle)
    return state if state.last == segment.previous else None
