"""Which segments a directory holds, and how far they are durable for certain: the first half of a recovery."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from dledger.common.types import LogPoint, Position, Term
from dledger.disk.record import in_file
from dledger.log.segment.segment import (
    FIRST_PAGE_BYTES,
    SECTOR_BYTES,
    SEGMENT_SUFFIX,
    STATE_SUFFIX,
    Segment,
    SegmentHeader,
    SegmentName,
    SyncMark,
    Trailer,
    corrupt,
    is_origin,
    marks_are_rotten,
    parse_name,
    read_trailer,
    unpack_header,
    unpack_hint,
    unpack_mark,
)
from dledger.log.segment.segment_files import SegmentFiles


class Durable(NamedTuple):
    """Everything up to ``point`` was durable once; its frame ends at ``offset`` of segment ``ordinal``."""

    ordinal: int
    offset: int
    point: LogPoint
    clean: bool
    """The log was closed in order there."""
    commit_hint: int


class _Found(NamedTuple):
    segment: Segment
    header: SegmentHeader | None
    mark: SyncMark | None
    hint: int | None
    trailer: Trailer | None
    is_origin: bool


def take_inventory(files: SegmentFiles, names: Sequence[str]) -> Durable:
    """Fills ``files.segments``, segments that a roll had only begun included. Segments left behind by a trim or a reset
    are left out. Blocks, changes nothing; raises CORRUPT_LOG and ``NewerFormat``."""
    found = [_look(files, name) for name in sorted(filter(None, map(_segment_name, names)))]
    if not found:
        raise corrupt(str(files.directory), 0, "small states are there but no segment")
    origin = max((at for at, each in enumerate(found) if each.is_origin), default=0)
    found = found[origin:]
    first = found[0].segment
    if not found[0].is_origin and first.previous.position > 0:
        raise corrupt(
            first.path, 0, f"the log would begin behind position {first.previous.position}: segments are missing"
        )
    sealed = max((at for at, each in enumerate(found) if each.trailer is not None), default=-1)
    marked = max((at for at, each in enumerate(found) if each.mark is not None), default=0)
    certain = max(marked, sealed + 1)
    _check_certain(found, certain)
    found[certain + 1 :] = [_look(files, each.segment.name, anew=True) for each in found[certain + 1 :]]
    state_names = set(names)
    for each in found:
        each.segment.has_state = each.segment.name.file(STATE_SUFFIX) in state_names
    files.segments = [each.segment for each in found]
    hint = next((each.hint for each in reversed(found) if each.hint is not None), 0)
    mark = found[marked].mark
    if mark is not None and marked > sealed:
        return Durable(marked, mark.offset, mark.point, mark.clean, hint)
    return Durable(certain, FIRST_PAGE_BYTES, found[certain].segment.previous, clean=False, commit_hint=hint)


def _segment_name(name: str) -> SegmentName | None:
    return parse_name(name) if name.endswith(SEGMENT_SUFFIX) else None


def _look(files: SegmentFiles, name: SegmentName, *, anew: bool = False) -> _Found:
    """A segment as the disk has it, not as the page cache does. A failed sync leaves pages that look clean and never
    reached the disk. A segment with a trailer is believed without that, unless ``anew``: it got the trailer when all of
    it was durable."""
    path = str(files.directory / name.file(SEGMENT_SUFFIX))
    with in_file(path):
        return _read(files, name, path, anew=anew)


def _read(files: SegmentFiles, name: SegmentName, path: str, *, anew: bool) -> _Found:
    disk = files.disk
    handle = disk.open(path, read_only=True)
    try:
        size_bytes = disk.size(handle)
        trailer = None if anew else read_trailer(disk, handle, size_bytes)
        if trailer is None:
            disk.drop_cache(handle)  # all of it: the first page alone may lie within one large folio, and stay
            trailer = read_trailer(disk, handle, size_bytes)
        page = disk.pread(handle, FIRST_PAGE_BYTES, 0)
    finally:
        disk.close(handle)
    # A header without the whole of its page: the power went while a roll made the file.
    header = unpack_header(page) if len(page) == FIRST_PAGE_BYTES else None
    # Without a good header nothing links to the segment, so nothing in it is read.
    previous = header.previous if header is not None else LogPoint(Position(name.base_position - 1), Term(0), -1)
    is_outdated = header is not None and header.is_outdated
    segment = Segment(name, path, previous, size_bytes, is_outdated=is_outdated)
    mark = unpack_mark(page)
    if mark is not None:
        segment.mark_sequence = mark.sequence
    if header is not None and header.name != name:
        raise corrupt(path, 0, "its first page belongs to a segment of another name")
    if header is not None and header.group != files.group:
        raise corrupt(path, 0, f"it belongs to group {header.group!r}, not {files.group!r}")
    if trailer is None and marks_are_rotten(page):
        raise corrupt(path, SECTOR_BYTES, "neither of its sync marks matches its checksum")
    if trailer is not None:
        segment.sealed = True
        segment.end_offset = trailer.footer_offset
        segment.last_timestamp_ms = trailer.last_timestamp_ms
    return _Found(segment, header, mark, unpack_hint(page), trailer, is_origin(page, previous))


def _check_certain(found: Sequence[_Found], certain: int) -> None:
    """Every segment up to ``certain`` was durable: all must be there, with a good first page, one behind the other."""
    if certain >= len(found):
        raise corrupt(found[-1].segment.path, 0, "it is followed by another segment, which is missing")
    for each in found[: certain + 1]:
        if each.segment.size_bytes < FIRST_PAGE_BYTES:
            raise corrupt(each.segment.path, 0, f"it has {each.segment.size_bytes} bytes, no first page")
        if each.header is None:
            raise corrupt(each.segment.path, 0, "the first page does not match its checksum")
    for each, following in pairwise(found[: certain + 1]):
        end, name = each.trailer, following.segment.name
        if end is not None and (end.last, end.next_index) != (following.segment.previous, name.base_index):
            raise corrupt(
                following.segment.path, 0, f"it does not follow {each.segment.path}: a segment between them is missing"
            )
