"""Reading frames from the files: at once from the page cache, else in a thread, with every check on the way."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from sys import maxsize
from typing import NamedTuple

from dledger.common.batch import Buffer
from dledger.common.errors import Code, DLedgerError, NewerFormat, error
from dledger.common.types import Entry, LogPoint
from dledger.disk.syncer import Handle
from dledger.log.frame.frame import (
    HEADER_BYTES,
    MAX_FRAMES_READ,
    Frame,
    FrameHeader,
    check_link,
    parse_body,
    parse_header,
)
from dledger.log.segment.checked_blocks import CheckedBlocks
from dledger.log.segment.index import INDEX_INTERVAL_BYTES, SparseIndex
from dledger.log.segment.segment import FIRST_PAGE_BYTES, Segment, Unreadable, corrupt
from dledger.log.segment.segment_files import SegmentFiles

READ_AHEAD_BYTES = 8 << 20
"""How far the kernel reads ahead of a reader that reads in order."""
MAX_BROUGHT_BYTES = 256 << 10
"""Larger blocks, which have to be read whole for one record, are read one by one."""
KEPT_BYTES = 1 << 20
"""Of what is brought for many records at once, so much is kept until they are found; the rest is in the page cache. Nor
are many more bytes of them found in one turn of the loop."""
_MAX_STEPS = 2  # where in its frame a record lies, and then the record

IsWanted = Callable[[FrameHeader], bool]


class _Range(NamedTuple):
    """Bytes of a segment."""

    segment: Segment
    offset: int
    size_bytes: int


class _Walk:
    """Frames of one piece of a segment, from the first that is wanted on."""

    def __init__(
        self,
        segment: Segment,
        position: int,
        offset: int,
        *,
        max_frames: int = maxsize,
        keeps_cache: bool = False,
    ) -> None:
        """``keeps_cache``: what had to come from the device may be wanted again."""
        self.segment = segment
        self.keeps_cache = keeps_cache
        self.was_cold = False
        self._max_frames = max_frames
        self.frames: list[Frame] = []
        self.size_bytes = 0
        self.offset = offset
        """Of the next frame to look at."""
        self._position = position
        at_start = offset == FIRST_PAGE_BYTES
        self._previous: LogPoint | None = segment.previous if at_start else None
        self._next_index = segment.name.base_index

    def take(self, data: memoryview, is_wanted: IsWanted, max_bytes: int) -> int:
        """Looks at the whole frames in ``data``, which begins at ``offset``, until about ``max_bytes`` are taken.
        Returns the bytes needed for the next frame, 0 when enough was taken. Raises CORRUPT_LOG."""
        at = 0
        frames = self.frames
        while len(data) - at >= HEADER_BYTES:
            header = parse_header(data, at)
            stored_bytes = header.stored_bytes
            self._check(header, data[at : at + HEADER_BYTES])
            if frames or is_wanted(header):
                if frames and (self.size_bytes + stored_bytes > max_bytes or len(frames) == self._max_frames):
                    return 0
                if len(data) - at < stored_bytes:
                    return stored_bytes
                frames.append(parse_body(header, data[at : at + stored_bytes]))
                self.size_bytes += stored_bytes
            self._position += 1
            self._previous, self._next_index = header.point, header.base_index + header.count
            self.offset += stored_bytes
            at += stored_bytes
        return HEADER_BYTES

    def _check(self, header: FrameHeader, head: memoryview) -> None:
        if header.position != self._position:
            raise error(Code.CORRUPT_LOG, f"frame {header.position} stands in the place of {self._position}")
        if self._previous is not None:
            check_link(self._previous, self._next_index, header, head)


class FrameReader:
    """Reads of one log. ``settle`` waits for those under way."""

    def __init__(self, files: SegmentFiles) -> None:
        self._checked = CheckedBlocks()
        self._files = files
        self._active_reads = 0
        self._settled: asyncio.Future[None] | None = None

    async def from_position(self, first: int, max_bytes: int) -> list[Frame]:
        """Frames of one segment from position ``first`` on, which is in the log: at least one, about ``max_bytes``,
        at most ``MAX_FRAMES_READ``."""
        segment = self._files.by_position(first)
        with self._files.pinned(segment):  # all along: it may leave the log meanwhile
            index = await self._index_of(segment)
            holes = self._files.damage.of(segment)
            for hole in holes:
                if hole.first <= first <= hole.last:
                    raise self._files.damage.refusal(hole)
            position, offset = index.offset_before_position(first)
            for hole in holes:
                if hole.last < first and hole.end_offset is not None and hole.end_offset > offset:
                    position, offset = hole.last + 1, hole.end_offset
            end = next((hole.offset for hole in holes if hole.first > first), segment.end_offset)
            walk = _Walk(segment, position, offset, max_frames=MAX_FRAMES_READ)
            return await self._read(walk, end, lambda header: header.position >= first, max_bytes)

    def get_cached(self, index: int) -> Entry | None:
        """Record ``index``, which is in the log. None unless its block was checked before and the page cache still has
        it."""
        files = self._files
        segment = files.by_index(index)
        if segment.index is None:
            return None
        _, offset = segment.index.offset_before_index(index)
        handle, pread = files.open(segment), files.disk.pread_cached
        return self._checked.entry(segment, offset, index, lambda size_bytes, at: pread(handle, size_bytes, at))

    async def prefetch(self, indexes: Sequence[int]) -> dict[int, Entry]:
        """Of the records ``indexes``, all in the log, those from blocks that were checked before. Their missing bytes
        are read from the device together. The other records' bytes are in the page cache then, for ``of_index``."""
        begun = self._checked.generation
        found: dict[int, Entry] = {}
        brought: dict[_Range, Buffer] = {}
        for _ in range(_MAX_STEPS):
            left = [index for index in indexes if index not in found]
            await self._load_indexes(left)
            if begun != self._checked.generation:
                return {}
            missing = self._look(left, brought, found)
            if not missing:
                break
            await self._fetch(missing, brought)
            if begun != self._checked.generation:
                return {}
        self._look([index for index in indexes if index not in found], brought, found)
        return found

    def _is_kept(self, index: int) -> bool:
        """False once a trim has taken the segment of record ``index`` away."""
        return index >= self._files.segments[0].name.base_index

    async def _load_indexes(self, indexes: Sequence[int]) -> None:
        for index in filter(self._is_kept, indexes):
            segment = self._files.by_index(index)
            if segment.index is None:
                with self._files.pinned(segment):
                    await self._index_of(segment)

    def _look(self, indexes: Sequence[int], brought: dict[_Range, Buffer], found: dict[int, Entry]) -> list[_Range]:
        """Adds to ``found`` the records in ``brought`` and the page cache. Returns the ranges to be read next for the
        others, as far as they are known."""
        missing: dict[_Range, None] = {}
        found_bytes = sum(len(entry.value) for entry in found.values())
        for index in filter(self._is_kept, indexes):
            segment = self._files.by_index(index)
            if segment.index is None:
                continue
            if found_bytes > KEPT_BYTES:
                break
            read = partial(self._at_hand, segment, brought, missing)
            _, offset, end = segment.index.block_of_index(index)
            if self._checked.knows(segment, offset):
                entry = self._checked.entry(segment, offset, index, read)
                if entry is not None:
                    found[index] = entry
                    found_bytes += len(entry.value)
            elif end is not None and end - offset <= MAX_BROUGHT_BYTES:
                read(end - offset, offset)
        return list(missing)

    def _at_hand(
        self,
        segment: Segment,
        brought: dict[_Range, Buffer],
        missing: dict[_Range, None],
        size_bytes: int,
        offset: int,
    ) -> Buffer | None:
        wanted = _Range(segment, offset, size_bytes)
        data = brought.get(wanted)
        if data is None:
            data = self._files.disk.pread_cached(self._files.open(segment), size_bytes, offset)
        if data is None:
            missing[wanted] = None
        return data

    async def _fetch(self, missing: Sequence[_Range], brought: dict[_Range, Buffer]) -> None:
        disk = self._files.disk
        with ExitStack() as stack:
            handles = [stack.enter_context(self._files.pinned(each.segment)) for each in missing]
            if len(missing) > 1:
                for handle, each in zip(handles, missing, strict=True):
                    disk.read_ahead(handle, each.offset, each.size_bytes)

            def read() -> None:
                kept_bytes = 0
                for handle, each in zip(handles, missing, strict=True):
                    data = disk.pread(handle, each.size_bytes, each.offset)
                    kept_bytes += len(data)
                    if kept_bytes <= KEPT_BYTES:
                        brought[each] = data

            self._begin()
            try:
                await disk.run(read)
            finally:
                self._end()

    async def of_index(self, index: int) -> Frame:
        """The frame with record ``index``, which is in the log."""
        segment = self._files.by_index(index)
        with self._files.pinned(segment):
            sparse_index = await self._index_of(segment)
            position, offset, end_of_block = sparse_index.block_of_index(index)
            if end_of_block is not None and not self._files.damage.of(segment):
                return await self._of_block(segment, position, offset, end_of_block, index)
            end = segment.end_offset
            for hole in self._files.damage.of(segment):
                if index >= hole.next_index and (hole.end_index is None or index < hole.end_index):
                    raise self._files.damage.refusal(hole)
                if hole.next_index > index:
                    end = min(end, hole.offset)
                elif hole.end_offset is not None and hole.end_offset > offset:
                    position, offset = hole.last + 1, hole.end_offset
            walk = _Walk(segment, position, offset, keeps_cache=True)
            return (await self._read(walk, end, lambda header: header.end_index > index, 1))[0]

    async def _of_block(self, segment: Segment, position: int, offset: int, end: int, index: int) -> Frame:
        """Reads the whole block, so that its next records are at hand."""
        generation = self._checked.generation
        walk = _Walk(segment, position, offset, keeps_cache=True)
        frames = await self._read(walk, end, lambda _: True, end - offset)
        if generation == self._checked.generation:
            self._checked.note(segment, offset, frames)
        found = next((frame for frame in frames if frame.header.end_index > index), None)
        if found is None:
            raise corrupt(segment.path, offset, f"a frame with record {index} is missing")
        return found

    def forget(self) -> None:
        """Frames are replaced: what was checked before is checked anew. Only when no read is under way."""
        self._checked.clear()

    async def settle(self) -> None:
        """Waits until no read is under way."""
        while self._active_reads:
            if self._settled is None:
                self._settled = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._settled)

    async def _read(self, walk: _Walk, end: int, is_wanted: IsWanted, max_bytes: int) -> list[Frame]:
        segment, begin = walk.segment, walk.offset
        frames = await self._walk(walk, end, is_wanted, max_bytes)
        if segment.sealed and not walk.keeps_cache and (walk.was_cold or begin < segment.ahead_offset):
            self._go_ahead(walk, begin)
        return frames

    def _go_ahead(self, walk: _Walk, begin: int) -> None:
        """For a reader that goes through the device's frames in order: the kernel reads the next part meanwhile, and
        forgets the parts already read. Catching up must not push the hot tail out of the cache, nor wait for a thread
        at every step."""
        segment, disk = walk.segment, self._files.disk
        handle = self._files.open(segment)
        done = walk.offset - INDEX_INTERVAL_BYTES  # the next read may begin at an entry that far before
        first = max(0, begin - 2 * INDEX_INTERVAL_BYTES)
        if done > first:
            disk.drop_cache(handle, first, done - first)
        known = walk.offset if walk.was_cold else max(segment.ahead_offset, walk.offset)
        end = min(walk.offset + READ_AHEAD_BYTES, segment.end_offset)
        if end - known >= READ_AHEAD_BYTES // 2 or (known < end == segment.end_offset):
            disk.read_ahead(handle, known, end - known)
            known = end
        segment.ahead_offset = known if walk.offset < segment.end_offset else 0

    async def _walk(self, walk: _Walk, end: int, is_wanted: IsWanted, max_bytes: int) -> list[Frame]:
        segment = walk.segment
        want = max_bytes + INDEX_INTERVAL_BYTES
        while walk.offset < end:
            size_bytes = min(want, end - walk.offset)
            data = memoryview(await self._pread(walk, size_bytes))
            try:
                needs = walk.take(data, is_wanted, max_bytes)
            except NewerFormat as newer:
                raise newer.in_file(segment.path) from newer
            except DLedgerError as bad:
                raise corrupt(segment.path, walk.offset, bad) from bad
            if not needs or (walk.frames and walk.size_bytes >= max_bytes):
                return walk.frames
            if walk.frames and walk.offset < end:
                return walk.frames  # the next frame is not whole in this piece: it begins the next one
            if len(data) < size_bytes or (end - walk.offset < needs and walk.offset < end):
                raise corrupt(segment.path, walk.offset, "the file ends within a frame")
            want = max(want, needs)
        if not walk.frames:
            raise corrupt(segment.path, walk.offset, "a frame that the index names is missing")
        return walk.frames

    async def _index_of(self, segment: Segment) -> SparseIndex:
        """Of a segment that the caller has pinned: it may leave the log meanwhile."""
        index = segment.index
        if index is None:
            self._begin()
            try:
                with self._files.pinned(segment) as handle:
                    index = await self._files.disk.run(partial(self._files.load_index, segment, handle))
            finally:
                self._end()
            if not segment.gone:
                segment.index = index
        self._files.open(segment)
        return index

    async def _pread(self, walk: _Walk, size_bytes: int) -> Buffer:
        """Raises ``Unreadable``, and OSError for anything else than a place that the device does not give back."""
        segment, offset = walk.segment, walk.offset
        with self._files.pinned(segment) as handle:
            try:
                data = self._files.disk.pread_cached(handle, size_bytes, offset)
                if data is None:
                    walk.was_cold = True
                    data = await self._pread_cold(handle, size_bytes, offset)
            except OSError as reason:
                if reason.errno != errno.EIO:
                    raise
                raise Unreadable(segment.path, offset, reason) from reason
            return data

    async def _pread_cold(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        self._begin()
        try:
            return await self._files.disk.run(partial(self._files.disk.pread, handle, size_bytes, offset))
        finally:
            self._end()

    def _begin(self) -> None:
        self._active_reads += 1

    def _end(self) -> None:
        self._active_reads -= 1
        if not self._active_reads and self._settled is not None:
            self._settled.set_result(None)
            self._settled = None
