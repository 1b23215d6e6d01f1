"""Restoring a segment's rotten header from other data on the disk.

A segment with a bad header was durable if it has a good mark or trailer of its own. It was also durable if the trailer
of the segment before it leads to it. Then the header rotted. Else a crash cut the making of the segment short. The
point before the first frame is known from the trailer of the segment before, or from the small state beside the
segment. Or it is the point at which every log begins.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from dledger.common.errors import DLedgerError, NewerFormat
from dledger.common.types import GENESIS, LogPoint
from dledger.disk.record import in_file
from dledger.log.frame.frame import HEADER_BYTES, check_link, parse_header
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.segment.segment import (
    FIRST_PAGE_BYTES,
    SEGMENT_SUFFIX,
    STATE_SUFFIX,
    SegmentHeader,
    SegmentName,
    Trailer,
    parse_name,
    read_trailer,
    unpack_header,
    unpack_mark,
    write_header,
)
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.snapshot_file import good_copies

logger = logging.getLogger(__name__)


def restore_headers(files: SegmentFiles, names: Sequence[str]) -> None:
    """Writes anew, durably, what is bad and known for certain. Blocks. Raises ``NewerFormat`` and OSError."""
    before: Trailer | None = None
    for name in sorted(filter(None, (parse_name(each) for each in names if each.endswith(SEGMENT_SUFFIX)))):
        path = str(files.directory / name.file(SEGMENT_SUFFIX))
        with in_file(path):
            before = _restore(files, name, path, before)


def _restore(files: SegmentFiles, name: SegmentName, path: str, before: Trailer | None) -> Trailer | None:
    """Returns the segment's trailer; ``before`` is that of the segment before it."""
    handle = files.disk.open(path, read_only=True)
    try:
        page = files.disk.pread(handle, FIRST_PAGE_BYTES + HEADER_BYTES, 0)
        trailer = read_trailer(files.disk, handle, files.disk.size(handle))
    finally:
        files.disk.close(handle)
    was_durable = unpack_mark(page) is not None or trailer is not None or _leads_to(before, name)
    is_whole = len(page) >= FIRST_PAGE_BYTES
    previous = _previous(files, name, before) if is_whole and was_durable and _is_rotten(page) else None
    if previous is not None and _fits(page, previous, name):
        logger.error("the header of a segment is damaged; it is written anew", extra={"path": path})
        write_header(files.disk, path, SegmentHeader(files.group, name.base_index, previous))
    return trailer


def _is_rotten(page: bytes) -> bool:
    try:
        return unpack_header(page) is None
    except DLedgerError:
        return False  # of a later version


def _leads_to(trailer: Trailer | None, name: SegmentName) -> bool:
    return trailer is not None and (trailer.last.position + 1, trailer.next_index) == name


def _previous(files: SegmentFiles, name: SegmentName, before: Trailer | None) -> LogPoint | None:
    if name == (1, 0):
        return GENESIS
    if before is not None and _leads_to(before, name):
        return before.last
    state = _read_state(files, name)
    return state.last if state is not None and (state.last.position + 1, state.next_index) == name else None


def _read_state(files: SegmentFiles, name: SegmentName) -> LogSnapshot | None:
    for copy in good_copies(files.disk, str(files.directory / name.file(STATE_SUFFIX))):
        with suppress(DLedgerError):
            return LogSnapshot.read(copy)
    return None


def _fits(page: bytes, previous: LogPoint, name: SegmentName) -> bool:
    """Whether the first frame, where it can be read, follows ``previous``."""
    head = page[FIRST_PAGE_BYTES:]
    try:
        header = parse_header(head)
    except NewerFormat:
        raise
    except DLedgerError:
        return True  # none yet, or damaged: its repair proves the rest
    try:
        check_link(previous, name.base_index, header, head)
    except DLedgerError:
        return False
    return True
