"""The files of one log: the list of its segments, the open ones, and how a segment comes into being and goes."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import LogPoint
from dledger.disk.disk import FULL, Disk
from dledger.disk.file_pool import FilePool
from dledger.disk.patient_reader import PatientReader
from dledger.disk.record import in_file
from dledger.disk.syncer import Handle
from dledger.log.frame.frame import parse_header
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.frame.scan import FrameScanner, ReadAt
from dledger.log.log_api import SegmentSpan
from dledger.log.segment.damage import Damage, Hole, Reach, find_holes
from dledger.log.segment.index import SparseIndex
from dledger.log.segment.segment import (
    FIRST_PAGE_BYTES,
    PREPARED_SUFFIX,
    SEGMENT_SUFFIX,
    Segment,
    SegmentHeader,
    corrupt,
    pack_first_page,
    read_footer,
    read_trailer,
    unseal,
)

MAX_OPEN_SEGMENTS = 128
"""Sealed segments kept open."""
MAX_INDEXED_SEGMENTS = 512
"""Sealed segments with an index in memory: for full segments, 40 to 130 MB in all."""


class SegmentFiles:
    """The segments of a directory, ascending. The last one is the active one: frames are written there."""

    def __init__(self, disk: Disk, directory: Path, group: str) -> None:
        self.disk = disk
        self.directory = directory
        self.group = group
        self.segments: list[Segment] = []
        self.damage = Damage()
        """What the segments are known to lack."""
        self._pool: FilePool[Segment] = FilePool(disk, str(directory), most_idle=MAX_OPEN_SEGMENTS)
        self._indexed: OrderedDict[Segment, None] = OrderedDict()
        """Sealed segments with their index in memory; the least recently used comes first."""
        self._made = count()

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    def by_position(self, position: int) -> Segment:
        """The segment that holds, or would hold, the frame at ``position``."""
        return self.segments[self.ordinal_of(position)]

    def ordinal_of(self, position: int) -> int:
        """The number of the segment ``by_position``."""
        at = bisect_right(self.segments, position, key=lambda each: each.name.base_position) - 1
        assert at >= 0, f"position {position} lies before the log"
        return at

    def by_index(self, index: int) -> Segment:
        """The segment that holds record ``index``."""
        at = bisect_right(self.segments, index, key=lambda each: each.name.base_index) - 1
        assert at >= 0, f"record {index} lies before the log"
        return self.segments[at]

    def by_path(self, path: str) -> Segment | None:
        return next((each for each in self.segments if each.path == path), None)

    def after(self, segment: Segment) -> Segment | None:
        segments = self.segments
        at = bisect_right(segments, segment.name, key=lambda each: each.name)
        return segments[at] if at < len(segments) else None

    def unwritable(self, reason: OSError) -> DLedgerError:
        """The error for a caller whose whole write was refused because of ``reason``."""
        if reason.errno in FULL:
            return error(Code.DISK_FULL, f"the disk of {self.directory} has no room: make some; nothing was appended")
        return error(Code.DISK_ERROR, f"{self.directory} cannot be written ({reason.strerror}): see to the disk")

    def unreadable(self, reason: OSError) -> DLedgerError:
        """The error for a caller whose read failed."""
        return error(Code.DISK_ERROR, f"{self.directory} cannot be read ({reason.strerror}): see to the disk")

    @property
    def size_bytes(self) -> int:
        """Of all segments, room that is reserved included."""
        return sum(segment.size_bytes for segment in self.segments)

    def spans(self, state: LogSnapshot) -> list[SegmentSpan]:
        """The records of each segment, of a log in this ``state``."""
        segments = self.segments
        ends = [*(each.name.base_index for each in segments[1:]), state.next_index]
        found = []
        for segment, end_index in zip(segments, ends, strict=True):
            base_index = max(segment.name.base_index, state.first_index)
            newest_ms = state.last_timestamp_ms if segment is segments[-1] else segment.newest_timestamp_ms
            if base_index < end_index:
                size_bytes = segment.end_offset - FIRST_PAGE_BYTES
                found.append(SegmentSpan(base_index, end_index, size_bytes, newest_ms))
        return found

    def begin_with(self, first: int) -> list[Segment]:
        """Takes the segments before number ``first`` out of the log; their files are the caller's to remove."""
        # A new list: a thread may be walking over the old one.
        removed, self.segments = self.segments[:first], self.segments[first:]
        for segment in removed:
            self._leave(segment)
        self.damage.forget_gone()
        return removed

    def _leave(self, segment: Segment) -> None:
        """It is no part of the log any more. A reader of it has its handle pinned, and its index."""
        segment.gone, segment.index = True, None
        self._indexed.pop(segment, None)
        self.close(segment)

    def open(self, segment: Segment) -> Handle:
        """Its handle, to be used at once: another ``open`` may close it, unless it is pinned. Raises SHUTTING_DOWN once
        the log is closed, and OSError."""
        return self._pool.open(segment, may_close=self._use(segment))

    def pin(self, segment: Segment) -> Handle:
        """Its handle, which stays open until ``unpin``. Raises as ``open``."""
        return self._pool.pin(segment, may_close=self._use(segment))

    def _use(self, segment: Segment) -> bool:
        """Whether its file and its index may go from memory when others are used."""
        may_go = segment.sealed and not segment.gone
        if may_go and segment.index is not None:
            self._indexed[segment] = None
            self._indexed.move_to_end(segment)
            if len(self._indexed) > MAX_INDEXED_SEGMENTS:
                self._indexed.popitem(last=False)[0].index = None
        return may_go

    @contextmanager
    def pinned(self, segment: Segment) -> Iterator[Handle]:
        """The handle stays open while a thread uses it."""
        handle = self.pin(segment)
        try:
            yield handle
        finally:
            self.unpin(segment)

    @contextmanager
    def reading(self, segment: Segment) -> Iterator[Handle]:
        """A handle of the caller's own, for any thread."""
        with self._pool.reading(segment) as handle:
            yield handle

    def unpin(self, segment: Segment) -> None:
        self._pool.unpin(segment)

    def close(self, segment: Segment) -> None:
        """Closes the file now, or when the last use of it ends."""
        self._pool.close(segment)

    def unseal(self, segment: Segment) -> None:
        """Takes its trailer back, durably, and keeps it open."""
        self.open(segment)
        unseal(self.disk, segment)
        self._pool.keep_open(segment)
        self._indexed.pop(segment, None)

    def close_all(self) -> None:
        """A reader that goes on opens nothing anew."""
        self._pool.shut()
        for segment in self.segments:
            self.close(segment)

    def make(self, size_bytes: int) -> tuple[str, Handle]:
        """A new file with room for a segment, not yet one of the log's. Raises OSError and leaves nothing."""
        path = str(self.directory / f"{next(self._made)}{PREPARED_SUFFIX}")
        handle = self.disk.open(path, create=True)
        try:
            self.disk.ftruncate(handle, 0)  # what an earlier one left reads as zeros
            self.disk.fallocate(handle, 0, size_bytes)
        except OSError:
            self.disk.close(handle)
            self.disk.unlink(path)
            raise
        return path, handle

    def adopt(
        self,
        source: str,
        handle: Handle,
        header: SegmentHeader,
        commit_hint: int,
        *,
        durable: bool = False,
        origin: bool = False,
    ) -> Segment:
        """Makes a prepared file a segment, by its first page and its name; ``segments`` has it when the caller adds it.

        ``durable``: the first page is synced before the name is given. ``origin``: the log begins with it. The
        directory is left to the caller. Raises OSError and leaves nothing.
        """
        path = str(self.directory / header.name.file(SEGMENT_SUFFIX))
        try:
            self.disk.pwritev(handle, [pack_first_page(header, commit_hint, origin=origin)], 0)
            if durable:
                self.disk.fdatasync(handle)
            self.disk.rename(source, path)
        except OSError:
            self.disk.close(handle)
            self.disk.unlink(source)
            raise
        size_bytes = self.disk.size(handle)
        return Segment(header.name, path, header.previous, size_bytes, index=SparseIndex(), handle=handle)

    def remove(self, segment: Segment) -> None:
        """Unlinks the segment and its small state, durably."""
        self._leave(segment)
        if self.disk.exists(segment.state_path):
            self.disk.unlink(segment.state_path)
        self.disk.unlink(segment.path)
        self.disk.fsync_directory(str(self.directory))
        # A new list: somebody may be walking over the old one.
        self.segments = [each for each in self.segments if each is not segment]

    def reader_of(self, handle: Handle) -> ReadAt:
        def read(size_bytes: int, offset: int) -> bytes:
            return self.disk.pread(handle, size_bytes, offset)

        return read

    def scanner(self, segment: Segment, handle: Handle) -> FrameScanner:
        """Over all frames of the segment, as far as they are good."""
        end = segment.end_offset if segment.sealed else segment.size_bytes
        return FrameScanner(
            self.reader_of(handle),
            FIRST_PAGE_BYTES,
            end,
            segment.previous,
            segment.name.base_index,
            path=segment.path,
        )

    def load_index(self, segment: Segment, handle: Handle) -> SparseIndex:
        """The index of a segment that is not the active one: its footer, or built again. Blocks; raises CORRUPT_LOG."""
        try:
            with in_file(segment.path):
                trailer = read_trailer(self.disk, handle, segment.size_bytes)
                index = read_footer(self.disk, handle, segment.size_bytes, trailer) if trailer is not None else None
        except OSError as reason:
            if reason.errno != errno.EIO:
                raise
            index = None
        return index or self.build_index(segment, handle)

    def build_index(self, segment: Segment, handle: Handle) -> SparseIndex:
        """From the frames, around the holes that are known. Blocks; raises CORRUPT_LOG if there is another."""
        was_sealed = segment.sealed  # its end is known then; and it may be cut, and written on, while this reads
        end = segment.end_offset if was_sealed else segment.size_bytes
        index, scanner = self.index_around(segment, handle, end)
        following, holes = self.after(segment), self.damage.of(segment)
        ends_well = following is None or scanner.previous == following.previous
        if not ends_well and (not holes or holes[-1].following):
            raise corrupt(segment.path, scanner.offset, scanner.reason or "frames are missing")
        if not was_sealed:
            segment.end_offset = max(segment.end_offset, scanner.offset)
        return index

    def index_around(self, segment: Segment, handle: Handle, end: int) -> tuple[SparseIndex, FrameScanner]:
        """An index of the good frames before offset ``end``, but for those in holes, and where it got to. Blocks;
        raises CORRUPT_LOG if there is another hole."""
        index, read = SparseIndex(), PatientReader(self.disk, handle)
        scanner = FrameScanner(
            read, FIRST_PAGE_BYTES, end, segment.previous, segment.name.base_index, path=segment.path
        )
        for hole in self.damage.of(segment):
            scanner.end_offset = hole.offset
            for offset, frame in scanner:
                index.add(frame, offset)
            if scanner.offset != hole.offset:
                raise corrupt(segment.path, scanner.offset, scanner.reason or "frames are missing")
            index.begin(hole.first, hole.next_index, hole.offset)
            if hole.end_offset is None or not hole.following:
                return index, scanner
            first = parse_header(hole.following)
            index.add_header(first, hole.end_offset)
            scanner = FrameScanner(
                read, hole.end_offset + first.stored_bytes, end, first.point, first.end_index, path=segment.path
            )
        for offset, frame in scanner:
            index.add(frame, offset)
        return index, scanner

    def reach_of(self, segment: Segment, last: LogPoint, next_index: int) -> Reach:
        """The end of the frames of ``segment``, in a log that ends with ``last``, before index ``next_index``."""
        following = self.after(segment)
        if following is None:
            return Reach(segment.end_offset, last, next_index)
        knows_end = (segment.sealed or segment.index is not None) and not self.damage.hides_end(segment)
        offset = segment.end_offset if knows_end else None
        return Reach(offset, following.previous, following.name.base_index)

    def look(self, segment: Segment, reach: Reach) -> list[Hole]:
        """All holes of ``segment``, by reading every frame from the device. Blocks."""
        with self.reading(segment) as handle:
            self.disk.drop_cache(handle)
            return find_holes(PatientReader(self.disk, handle), self.disk.size(handle), segment, reach)
