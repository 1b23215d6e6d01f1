"""The files of one log: which segments there are, which are open, and how one comes into being and goes."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from dledger.storage.disk import Disk
from dledger.storage.index import SparseIndex
from dledger.storage.scan import FrameScanner
from dledger.storage.segment import (
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
from dledger.storage.syncer import Handle

MAX_OPEN_SEGMENTS = 32
"""Sealed segments kept open, with their indexes in memory."""


class SegmentFiles:
    """The segments of a directory, ascending. The last one is the active one: frames are written there."""

    def __init__(self, disk: Disk, directory: Path, group: str) -> None:
        self.disk = disk
        self.directory = directory
        self.group = group
        self.segments: list[Segment] = []
        self._open: OrderedDict[Segment, None] = OrderedDict()  # sealed ones; the least recently used goes first
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

    def after(self, segment: Segment) -> Segment | None:
        segments = self.segments
        at = bisect_right(segments, segment.name, key=lambda each: each.name)
        return segments[at] if at < len(segments) else None

    @property
    def size_bytes(self) -> int:
        """Of all segments, room that is reserved included."""
        return sum(segment.size_bytes for segment in self.segments)

    def begin_with(self, first: int) -> list[Segment]:
        """Takes the segments before number ``first`` out of the log; their files are the caller's to remove."""
        # A new list: a thread may be walking over the old one.
        removed, self.segments = self.segments[:first], self.segments[first:]
        for segment in removed:
            segment.gone = True
            self.close(segment)
        return removed

    def open(self, segment: Segment) -> Handle:
        """Its handle, to be used at once: another ``open`` may close it, unless it is pinned."""
        if segment.handle is None:
            segment.handle = self.disk.open(segment.path)
        if segment.sealed:
            self._open[segment] = None
            self._open.move_to_end(segment)
            while len(self._open) > MAX_OPEN_SEGMENTS:
                coldest, _ = self._open.popitem(last=False)
                coldest.index = None
                self.close(coldest)
        return segment.handle

    @contextmanager
    def pinned(self, segment: Segment) -> Iterator[Handle]:
        """The handle stays open while a thread uses it."""
        handle = self.open(segment)
        segment.pins += 1
        try:
            yield handle
        finally:
            self.unpin(segment)

    @contextmanager
    def reading(self, segment: Segment) -> Iterator[Handle]:
        """A handle of the caller's own, for any thread."""
        handle = self.disk.open(segment.path, read_only=True)
        try:
            yield handle
        finally:
            self.disk.close(handle)

    def unpin(self, segment: Segment) -> None:
        segment.pins -= 1
        if segment.closing and not segment.pins:
            self.close(segment)

    def close(self, segment: Segment) -> None:
        """Closes the file now, or when the last use of it ends."""
        self._open.pop(segment, None)
        if segment.pins:
            segment.closing = True
            return
        segment.closing = False
        if segment.handle is not None:
            self.disk.close(segment.handle)
            segment.handle = None

    def unseal(self, segment: Segment) -> None:
        """Takes its trailer back, durably, and keeps it open."""
        self.open(segment)
        unseal(self.disk, segment)
        self._open.pop(segment, None)

    def close_all(self) -> None:
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
        segment.gone = True
        self.close(segment)
        if self.disk.exists(segment.state_path):
            self.disk.unlink(segment.state_path)
        self.disk.unlink(segment.path)
        self.disk.fsync_directory(str(self.directory))
        if segment in self.segments:
            self.segments.remove(segment)

    def scanner(self, segment: Segment, handle: Handle) -> FrameScanner:
        """Over all frames of the segment, as far as they are good."""

        def read(size_bytes: int, offset: int) -> bytes:
            return self.disk.pread(handle, size_bytes, offset)

        end = segment.end_offset if segment.sealed else segment.size_bytes
        return FrameScanner(read, FIRST_PAGE_BYTES, end, segment.previous, segment.name.base_index)

    def load_index(self, segment: Segment, handle: Handle) -> SparseIndex:
        """The index of a segment that is not the active one: its footer, or built again. Blocks; raises CORRUPT_LOG."""
        trailer = read_trailer(self.disk, handle, segment.size_bytes)
        index = read_footer(self.disk, handle, segment.size_bytes, trailer) if trailer is not None else None
        if index is not None:
            return index
        index = SparseIndex()
        scanner = self.scanner(segment, handle)
        for offset, frame in scanner:
            index.add(frame.header, offset)
        following = self.after(segment)
        if following is not None and scanner.previous != following.previous:
            raise corrupt(segment.path, scanner.offset, scanner.reason or "frames are missing")
        segment.end_offset = scanner.offset
        return index
