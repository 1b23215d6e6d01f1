"""A copy of one node's files, or the files of a running node: its committed records, read in place.

Read-only. The files themselves tell how far the records are committed (the commit hint), a little late. So a copy of
the files may miss the node's latest commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from dledger.common.errors import Code, DLedgerError, NewerFormat, error
from dledger.common.types import DEFAULT_GROUP, LogPoint
from dledger.disk.disk import Disk, OsDisk
from dledger.disk.syncer import Handle
from dledger.log.frame.frame import HEADER_BYTES, Frame, FrameHeader, check_link, parse_body, parse_header
from dledger.log.frame.scan import SCAN_CHUNK_BYTES
from dledger.log.log_api import SegmentSpan
from dledger.log.recovery.inventory import Durable, take_inventory
from dledger.log.segment.segment import FIRST_PAGE_BYTES, Segment, corrupt
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.verify import find_log, group_of

ATTEMPTS = 3


class CopiedFrame(NamedTuple):
    """A good frame, and where it lies in its file."""

    frame: Frame
    offset: int


class Sight(NamedTuple):
    """The bytes at a place for a frame: a good frame, or ``problem``."""

    position: int
    """The frame's own; where its header cannot be read, the one it should have."""
    offset: int
    header: FrameHeader | None
    problem: str
    """Empty: all is well with it."""


class LogCopy:
    """The files as they were when it was made. Blocks; not bound to any event loop."""

    def __init__(self, directory: Path, group: str = DEFAULT_GROUP) -> None:
        """``directory``: a node's, or one group's. Raises CONFIG_ERROR if no log of ``group`` is there, CORRUPT_LOG if
        segments are missing between the files."""
        self.directory = find_log(directory, group)
        self._disk = OsDisk()
        self._files = SegmentFiles(self._disk, self.directory, "")
        self._durable = self._take_inventory()
        self.group = self._files.group
        self.commit_position = min(self._durable.commit_hint, self._durable.point.position)

    def _take_inventory(self) -> Durable:
        """Begins again if a running node changed its files meanwhile."""
        for attempts_left in reversed(range(ATTEMPTS)):
            try:
                names = self._disk.listdir(str(self.directory))
                self._files.group = group_of(self._disk, self.directory, names)
                return take_inventory(self._files, names)
            except FileNotFoundError as gone:
                if not attempts_left:
                    raise corrupt(str(self.directory), 0, f"{gone.filename} is missing") from gone
            except DLedgerError:
                if not attempts_left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    @property
    def first_index(self) -> int:
        return self._files.segments[0].name.base_index

    @cached_property
    def end_index(self) -> int:
        """One past the last record known to be committed. Raises CORRUPT_LOG if that record cannot be read."""
        for segment in reversed(self.segments):
            if segment.previous.position > self.commit_position:
                continue
            end_index = segment.name.base_index
            for frame, _ in self.frames_of(segment):
                end_index = frame.header.end_index
            return end_index
        return self.first_index

    @property
    def segments(self) -> list[Segment]:
        """The segments with durable frames, ascending."""
        return self._files.segments[: self._durable.ordinal + 1]

    def spans(self) -> list[SegmentSpan]:
        """The committed records in each segment; segments without any are left out."""
        segments = self.segments
        ends = [*(each.name.base_index for each in segments[1:]), self.end_index]
        found = []
        for segment, end_index in zip(segments, ends, strict=True):
            end = min(end_index, self.end_index)
            if segment.name.base_index < end:
                size_bytes = (segment.end_offset if segment.sealed else segment.size_bytes) - FIRST_PAGE_BYTES
                found.append(SegmentSpan(segment.name.base_index, end, size_bytes, segment.newest_timestamp_ms))
        return found

    def read(self, start: int, end: int) -> Iterator[Frame]:
        """The data frames with the records from ``start`` to ``end`` (exclusive). All of these must be in the files.

        Raises INDEX_LESS_THAN_LOCAL_BEGIN, INDEX_OUT_OF_RANGE, and CORRUPT_LOG with file and offset.
        """
        if start < self.first_index:
            text = f"index {start} is not in {self.directory} any more; the first is {self.first_index}"
            raise error(Code.INDEX_LESS_THAN_LOCAL_BEGIN, text, first_index=self.first_index)
        if end > self.end_index:
            text = f"{self.directory} is known to hold committed records up to {self.end_index - 1} only"
            raise error(Code.INDEX_OUT_OF_RANGE, text, commit_index=self.end_index - 1)
        segments = self.segments
        ends = [*(each.name.base_index for each in segments[1:]), self.end_index]
        for segment, segment_end in zip(segments, ends, strict=True):
            if segment_end <= start or segment.name.base_index >= end:
                continue
            for frame, _ in self.frames_of(segment):
                header = frame.header
                if header.base_index >= end:
                    break
                if header.count and header.end_index > start:
                    yield frame

    def frames_of(self, segment: Segment) -> Iterator[CopiedFrame]:
        """The frames of one segment up to the commit position, each checked: checksums, links, positions, indexes.
        Raises CORRUPT_LOG if a frame is bad that was durable once."""
        with self._files.reading(segment) as handle:
            scanner = self._files.scanner(segment, handle)
            for offset, frame in scanner:
                if frame.header.position > self.commit_position:
                    return
                yield CopiedFrame(frame, offset)
            following = self._files.after(segment)
            is_whole = following is not None and following.previous == scanner.previous
            if not is_whole and scanner.previous.position < self.commit_position:
                raise corrupt(segment.path, scanner.offset, scanner.reason or "frames are missing")

    def look_at(self, segment: Segment) -> Iterator[Sight]:
        """Every frame of one segment up to the commit position, good or not. Frames behind a bad body are looked at
        too. Frames behind a bad header cannot be found."""
        previous, next_index, offset = segment.previous, segment.name.base_index, FIRST_PAGE_BYTES
        with self._files.reading(segment) as handle:
            read = _Window(self._disk, handle)
            while previous.position < self.commit_position:
                try:
                    header = parse_header(read.at(offset, HEADER_BYTES))
                except NewerFormat as newer:
                    raise newer.in_file(segment.path) from newer
                except DLedgerError as bad:
                    if not self._ends_with(segment, previous):
                        yield Sight(previous.position + 1, offset, None, str(bad))
                    return
                raw = read.at(offset, header.stored_bytes)
                yield Sight(header.position, offset, header, _problem(header, raw, previous, next_index))
                previous, next_index = header.point, header.end_index
                offset += header.stored_bytes

    def _ends_with(self, segment: Segment, last: LogPoint) -> bool:
        """Whether the segment holds nothing behind ``last``."""
        following = self._files.after(segment)
        return following is not None and following.previous.position == last.position


class _Window:
    """A file, read in large pieces."""

    def __init__(self, disk: Disk, handle: Handle) -> None:
        self._disk = disk
        self._handle = handle
        self._piece = memoryview(b"")
        self._begin = 0

    def at(self, offset: int, size_bytes: int) -> memoryview:
        """Fewer at the end of the file only."""
        if not self._begin <= offset or offset + size_bytes > self._begin + len(self._piece):
            self._piece = memoryview(self._disk.pread(self._handle, max(size_bytes, SCAN_CHUNK_BYTES), offset))
            self._begin = offset
        start = offset - self._begin
        return self._piece[start : start + size_bytes]


def _problem(header: FrameHeader, raw: memoryview, previous: LogPoint, next_index: int) -> str:
    try:
        check_link(previous, next_index, header, raw)
        parse_body(header, raw)
    except DLedgerError as bad:
        return str(bad)
    return ""
