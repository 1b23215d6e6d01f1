"""A log that lives in memory, with the interface of the one on disk: for simulations, and as the model in tests."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence

from dledger.errors import Code, DLedgerError, error
from dledger.storage.api import ObserveSync, OnDurable, OnFailure
from dledger.storage.frame import Frame
from dledger.storage.log_state import LogState, check_control
from dledger.types import Index, LogPoint, Member, Position, Term


class MemoryLog:
    """Frames in a list. Durable ``sync_delay_ms`` after an append, in groups as on a disk; 0: in the next loop turn."""

    def __init__(self, group: str, initial_members: Sequence[Member] = (), *, sync_delay_ms: float = 0) -> None:
        self.group = group
        self._initial_members = tuple(initial_members)
        self._sync_delay_ms = sync_delay_ms
        self._state = LogState(group, initial_members)
        self._frames: list[Frame] = []
        self._durable = Position(0)
        self._commit_hint = Position(0)
        self._generation = 0
        self._syncing = False
        self._failure: DLedgerError | None = None
        self._on_durable: OnDurable | None = None
        self._on_failure: OnFailure | None = None

    @property
    def state(self) -> LogState:
        return self._state

    @property
    def last(self) -> LogPoint:
        return self._state.last

    @property
    def durable_position(self) -> Position:
        return self._durable

    @property
    def commit_hint(self) -> Position:
        return self._commit_hint

    def set_callbacks(
        self, on_durable: OnDurable, on_failure: OnFailure, observe_sync_s: ObserveSync | None = None
    ) -> None:
        self._on_durable = on_durable
        self._on_failure = on_failure

    def append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        assert self._on_durable is not None, "set_callbacks comes before the first append"
        if self._failure is not None:
            raise self._failure
        for frame in frames:
            if not frame.header.count:
                check_control(frame)
        for frame in frames:
            self._state.apply(frame)
        self._frames.extend(frames)
        self._start_sync()

    async def truncate(self, after: Position) -> None:
        assert self._commit_hint <= after <= self.last.position, f"{after} is not a position to cut behind"
        self._generation += 1
        self._syncing = False
        del self._frames[after:]
        self._state = LogState(self.group, self._initial_members)
        for frame in self._frames:
            self._state.apply(frame)
        self._durable = min(self._durable, after)
        self._start_sync()

    def cached(self, first: Position, max_bytes: int) -> list[Frame] | None:
        if not 1 <= first <= len(self._frames):
            return None
        frames: list[Frame] = []
        size_bytes = 0
        for at in range(first - 1, len(self._frames)):
            size_bytes += self._frames[at].header.stored_bytes
            if frames and size_bytes > max_bytes:
                break
            frames.append(self._frames[at])
        return frames

    async def read(self, first: Position, max_bytes: int) -> list[Frame]:
        if first < 1:
            raise error(Code.INDEX_LESS_THAN_LOCAL_BEGIN, f"position {first} lies before the log's first, 1")
        return self.cached(first, max_bytes) or []

    async def frame_of(self, index: Index) -> Frame:
        if not 0 <= index < self._state.next_index:
            raise error(Code.INDEX_OUT_OF_RANGE, f"there is no record {index}; the last is {self._state.last_index}")
        return self._frames[bisect_right(self._frames, int(index), key=lambda frame: frame.header.end_index)]

    async def point_at(self, position: Position) -> LogPoint:
        assert 0 <= position <= self.last.position, f"position {position} is not in the log"
        return self._frames[position - 1].header.point if position else self._state.start

    def term_at(self, position: Position) -> Term:
        return self._state.term_at(position)

    def set_commit_hint(self, position: Position) -> None:
        self._commit_hint = max(self._commit_hint, position)

    async def close(self) -> None:
        """Completes what is not durable yet. The frames stay: the same object can be opened again."""
        self._generation += 1
        self._syncing = False
        if self._failure is None:
            self._complete(self.last.position)

    def reopen(self) -> None:
        """As after a crash and a restart: what was not durable is gone, callbacks are to be set again."""
        self._generation += 1
        self._syncing = False
        self._on_durable = self._on_failure = None
        self._failure = None
        del self._frames[self._durable :]
        self._state = LogState(self.group, self._initial_members)
        for frame in self._frames:
            self._state.apply(frame)

    def fail_sync(self) -> None:
        """The next, and every later, sync fails: DISK_ERROR, once."""
        self._generation += 1
        self._syncing = False
        self._failure = error(Code.DISK_ERROR, "fdatasync failed: restart the node when its disk is sound")
        if self._on_failure is not None:
            asyncio.get_running_loop().call_soon(self._on_failure, self._failure)

    def _start_sync(self) -> None:
        if self._syncing or self._failure is not None or self._durable == self.last.position:
            return
        self._syncing = True
        loop = asyncio.get_running_loop()
        arguments = (self._generation, self.last.position)
        if self._sync_delay_ms:
            loop.call_later(self._sync_delay_ms / 1000, self._synced, *arguments)
        else:
            loop.call_soon(self._synced, *arguments)

    def _synced(self, generation: int, position: Position) -> None:
        if generation != self._generation:
            return
        self._syncing = False
        self._complete(position)
        self._start_sync()

    def _complete(self, position: Position) -> None:
        if position > self._durable:
            self._durable = position
            if self._on_durable is not None:
                self._on_durable(position)
