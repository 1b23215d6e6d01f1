"""Reading a log that changes: from the tail cache, else the files, and again when frames were replaced meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from dledger.common.errors import Code, CorruptLog, DLedgerError, error
from dledger.common.types import Entry, Index, LogPoint, Position
from dledger.log.damage.inspection import Inspection
from dledger.log.frame.frame import Frame
from dledger.log.frame.log_snapshot import LogSnapshot, begins_later
from dledger.log.log_rewrite_lock import LogRewriteLock
from dledger.log.segment.frame_reader import FrameReader
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.tail_cache import TailCache

Result = TypeVar("Result")


class LogReader:
    """See ``api.Log`` for what each method promises."""

    def __init__(
        self,
        files: SegmentFiles,
        cache: TailCache,
        rewrite_lock: LogRewriteLock,
        inspection: Inspection,
        state: Callable[[], LogSnapshot],
    ) -> None:
        """``state``: of the log, as it is now."""
        self._files = files
        self._cache = cache
        self._frames = FrameReader(files)
        self._rewrite_lock = rewrite_lock
        self._inspection = inspection
        self._state = state

    async def read(self, first: Position, max_bytes: int) -> list[Frame]:
        async def attempt() -> list[Frame]:
            state = self._state()
            if first <= state.start.position:
                raise begins_later(f"position {first}", state)
            if first > state.last.position:
                return []
            return self._cache.get(first, max_bytes) or await self._frames.from_position(first, max_bytes)

        return await self.undisturbed(attempt)

    def get_cached(self, index: Index) -> Entry | None:
        state = self._state()
        if self._rewrite_lock.is_replacing or not state.first_index <= index < state.next_index:
            return None
        frame = self._cache.frame_of(index)
        if frame is not None:
            return frame.entry(index)
        try:
            return self._frames.get_cached(index)
        except OSError:
            return None  # ``frame_of`` reads it again, and says what is wrong

    async def prefetch(self, indexes: Sequence[Index]) -> dict[int, Entry]:
        state, generation = self._state(), self._rewrite_lock.generation
        kept = [index for index in indexes if state.first_index <= index < state.next_index]
        found: dict[int, Entry] = {}
        if kept and not self._rewrite_lock.is_replacing:
            with contextlib.suppress(OSError, CorruptLog):  # ``frame_of`` reads it again, and says what is wrong
                found = await self._frames.prefetch(kept)
        if self._rewrite_lock.is_replacing or generation != self._rewrite_lock.generation:
            return {}
        first_index = self._state().first_index
        return {index: entry for index, entry in found.items() if index >= first_index}

    async def frame_of(self, index: Index) -> Frame:
        async def attempt() -> Frame:
            state = self._state()
            if index < state.first_index:
                raise begins_later(f"record {index}", state)
            if index >= state.next_index:
                raise error(
                    Code.INDEX_OUT_OF_RANGE,
                    f"there is no record {index}; the last is {state.last_index}",
                    last_index=state.last_index,
                )
            return self._cache.frame_of(index) or await self._frames.of_index(index)

        return await self.undisturbed(attempt)

    async def point_at(self, position: Position) -> LogPoint:
        state = self._state()
        assert position <= state.last.position, f"position {position} is not in the log"
        if position == state.last.position:
            return state.last

        async def attempt() -> LogPoint:
            start = self._state().start
            if position < start.position:
                raise begins_later(f"position {position}", self._state())
            if position == start.position:
                return start
            # A word about a point binds this node: it must be true of the files, not only of memory.
            return (await self._frames.from_position(position, 1))[0].header.point

        return await self.undisturbed(attempt)

    async def undisturbed(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """``attempt``, again when a truncation came between: what it saw, or failed of, may be gone."""
        failed_at: dict[str, str] = {}
        while True:
            await self._rewrite_lock.settle()
            generation, changes = self._rewrite_lock.generation, self._inspection.changes
            try:
                result = await attempt()
            except DLedgerError as failure:
                if generation != self._rewrite_lock.generation:
                    continue
                if not isinstance(failure, CorruptLog):
                    raise
                await self._inspection.look_into(failure, changes, is_again=failure.metadata == failed_at)
                failed_at = failure.metadata
                continue
            except OSError as reason:
                if generation != self._rewrite_lock.generation:
                    continue
                raise self._files.unreadable(reason) from reason
            if generation == self._rewrite_lock.generation:
                return result

    async def settle(self) -> None:
        """Returns when no read of the files is under way."""
        await self._frames.settle()

    def forget(self) -> None:
        """Checks of the past do not count any more: the bytes may change now."""
        self._frames.forget()
