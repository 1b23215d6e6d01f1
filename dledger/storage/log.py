"""The log on disk: segments (segment.py), group commit (group_commit.py), the tail cache, and the small state.

::

    append ── SegmentWriter: pwritev, rolls ── LogState, SparseIndex, TailCache ── GroupCommit: fdatasync, marks
                    │ the next segment: Preparer                                        │ rolls that are durable: Sealer
    read ──── TailCache ── FrameReader: page cache, device
    truncate ─ Replay: the state at the cut ── cut: files, durably, in an order that any crash survives
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from dledger.config import Limits, Timings
from dledger.errors import Code, DLedgerError, error
from dledger.storage.api import ObserveSync, OnDurable, OnFailure
from dledger.storage.cut import cut
from dledger.storage.disk import FULL
from dledger.storage.frame import Frame
from dledger.storage.group_commit import GroupCommit, Written
from dledger.storage.log_state import LogState
from dledger.storage.preparer import Preparer
from dledger.storage.reader import FrameReader
from dledger.storage.replay import Replay
from dledger.storage.sealer import Roll, Sealer
from dledger.storage.segment_files import SegmentFiles
from dledger.storage.syncer import Syncer
from dledger.storage.tail_cache import TailCache
from dledger.storage.writer import Run, SegmentWriter, UndoFailedError
from dledger.types import Durability, Index, LogPoint, Member, Position, Term

if TYPE_CHECKING:
    from dledger.storage.recovery import RecoveryReport

Result = TypeVar("Result")


class FileLog:
    """A log in a directory; made by ``recovery.open_log``. See ``api.Log`` for what each method promises."""

    def __init__(
        self,
        files: SegmentFiles,
        state: LogState,
        *,
        durability: Durability,
        limits: Limits,
        timings: Timings,
        initial_members: Sequence[Member],
        commit_hint: int,
        recovery: RecoveryReport,
    ) -> None:
        """Everything in ``files`` is durable and marked, and ``state`` is the state after it."""
        self.group = files.group
        self.recovery = recovery
        """What the start found."""
        self._files = files
        self._state = state
        self._initial_members = tuple(initial_members)
        self._cache = TailCache(limits.tail_cache_bytes)
        self._reader = FrameReader(files)
        self._sealer = Sealer(files, self._on_os_error, limits.page_cache_bytes)
        self._preparer = Preparer(files, self._on_os_error)
        self._writer = SegmentWriter(files, self._preparer, limits)
        self._syncer: Syncer = files.disk.syncer(files.group)
        end = Written(files.active, state.last, files.active.end_offset)
        self._commit = GroupCommit(
            files,
            syncer=self._syncer,
            durability=durability,
            timings=timings,
            end=end,
            on_synced=self._sealer.synced,
        )
        self._commit.commit_hint = Position(commit_hint)
        self._truncated: asyncio.Task[None] | None = None  # the truncation under way
        self._generation = 0
        self._closed = False
        self._finish_rolls()
        self._writer.prepare_next()

    @property
    def state(self) -> LogState:
        return self._state

    @property
    def last(self) -> LogPoint:
        return self._state.last

    @property
    def durable_position(self) -> Position:
        return self._commit.durable

    @property
    def commit_hint(self) -> Position:
        return self._commit.commit_hint

    def set_callbacks(
        self, on_durable: OnDurable, on_failure: OnFailure, observe_sync_s: ObserveSync | None = None
    ) -> None:
        self._commit.observe_sync_s = observe_sync_s
        self._commit.on_durable = on_durable
        self._commit.on_failure = on_failure
        if self._commit.failure is not None:
            on_failure(self._commit.failure)

    def append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        assert self._commit.on_durable is not None, "set_callbacks comes before the first append"
        assert self._truncated is None, "a truncation is under way"
        assert not self._closed, "the log is closed"
        if self._commit.failure is not None:
            raise self._commit.failure
        if not frames:
            return
        state = self._state
        try:
            runs = self._writer.write(frames, state.last, state.next_index, self._commit.commit_hint)
        except UndoFailedError as worse:
            raise self._commit.fail(worse) from worse
        except OSError as reason:
            raise self._refusal(reason) from reason
        for run in runs:
            self._take(run)
        self._cache.extend(frames)
        active = self._files.active
        end = Written(active, state.last, active.end_offset)
        self._commit.written([run.segment for run in runs], end, after_turn=sync_after_turn)

    def _take(self, run: Run) -> None:
        segment, state = run.segment, self._state
        if run.is_new:
            self._sealer.rolled(Roll(self._files.active, segment, state.encode()))
            self._files.segments.append(segment)
            self._commit.rolled()
            self._writer.prepare_next()
        index = segment.index
        assert index is not None, "the active segment has its index at hand"
        for frame, offset in zip(run.frames, run.offsets, strict=True):
            state.apply(frame)
            index.add(frame.header, offset)
        segment.frames += len(run.frames)
        segment.end_offset = run.end_offset

    def _refusal(self, reason: OSError) -> DLedgerError:
        if reason.errno in FULL:
            return error(
                Code.DISK_FULL, f"the disk of {self._files.directory} has no room: make some; nothing was appended"
            )
        return error(Code.DISK_ERROR, f"{self._files.directory} cannot be written ({reason.strerror}): see to the disk")

    async def truncate(self, after: Position) -> None:
        state = self._state
        assert self._truncated is None, "a truncation is under way"
        assert after >= state.start.position, f"position {after} lies before the log's start"
        assert after >= min(self.commit_hint, state.last.position), (
            f"position {after} is committed, nothing is cut there"
        )
        if after >= state.last.position:
            return
        self._generation += 1
        # A task of the log's own: a caller that is cancelled must not leave the cut running under a log that closes.
        self._truncated = asyncio.get_running_loop().create_task(self._truncate(after), name=f"truncate-{self.group}")
        await asyncio.shield(self._truncated)

    async def _truncate(self, after: Position) -> None:
        try:
            await self._reader.settle()
            await self._sealer.pause()
            await self._commit.restart(partial(self._cut, after))
            self._sealer.truncated()
            self._sealer.synced(after)
        finally:
            self._truncated = None

    def _cut(self, after: Position) -> Written:
        files = self._files
        ordinal = files.segments.index(files.by_position(after + 1))
        replay = Replay(files, ordinal, self._initial_members)
        replay.run(after)
        assert replay.state.last.position == after, "frames that were appended cannot be read again"
        end = replay.end
        cut(
            files,
            end.segment,
            end.end_offset,
            replay.state.last,
            unsynced=self._commit.unsynced(),
            commit_hint=self.commit_hint,
        )
        end.segment.index, end.segment.frames = end.sparse_index, end.frames
        self._state = replay.state
        self._cache.truncate(after)
        return Written(end.segment, replay.state.last, end.end_offset)

    def cached(self, first: Position, max_bytes: int) -> list[Frame] | None:
        return self._cache.get(first, max_bytes)

    async def read(self, first: Position, max_bytes: int) -> list[Frame]:
        if first <= self._state.start.position:
            raise error(
                Code.INDEX_LESS_THAN_LOCAL_BEGIN,
                f"position {first} lies before the log's first, {self._state.start.position + 1}",
            )

        async def attempt() -> list[Frame]:
            if first > self.last.position:
                return []
            return self._cache.get(first, max_bytes) or await self._reader.from_position(first, max_bytes)

        return await self._undisturbed(attempt)

    async def frame_of(self, index: Index) -> Frame:
        async def attempt() -> Frame:
            state = self._state
            if index < state.first_index:
                raise error(
                    Code.INDEX_LESS_THAN_LOCAL_BEGIN,
                    f"record {index} lies before the log's first, {state.first_index}",
                    first_index=state.first_index,
                )
            if index >= state.next_index:
                raise error(
                    Code.INDEX_OUT_OF_RANGE,
                    f"there is no record {index}; the last is {state.last_index}",
                    last_index=state.last_index,
                )
            return self._cache.frame_of(index) or await self._reader.of_index(index)

        return await self._undisturbed(attempt)

    async def point_at(self, position: Position) -> LogPoint:
        state = self._state
        assert state.start.position <= position <= state.last.position, f"position {position} is not in the log"
        if position == state.last.position:
            return state.last
        if position == state.start.position:
            return state.start
        return (await self.read(position, 1))[0].header.point

    async def _undisturbed(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """``attempt``, again when a truncation came between: what it saw, or failed of, may be gone."""
        while True:
            if self._truncated is not None:
                await asyncio.wait([self._truncated])
            generation = self._generation
            try:
                result = await attempt()
            except DLedgerError as failure:
                if generation != self._generation:
                    continue
                if failure.code is Code.CORRUPT_LOG:
                    self._commit.refuse(failure)
                raise
            except OSError as reason:
                raise error(
                    Code.DISK_ERROR, f"{self._files.directory} cannot be read ({reason.strerror}): see to the disk"
                ) from reason
            if generation == self._generation:
                return result

    def term_at(self, position: Position) -> Term:
        return self._state.term_at(position)

    def set_commit_hint(self, position: Position) -> None:
        self._commit.commit_hint = max(self._commit.commit_hint, position)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._truncated is not None:
            await asyncio.wait([self._truncated])
        await self._preparer.close()
        await self._reader.settle()
        await self._commit.close()
        await self._sealer.drain()
        self._files.close_all()

    def _finish_rolls(self) -> None:
        """Seals what an earlier start left unsealed."""
        for old, new in zip(self._files.segments, self._files.segments[1:], strict=False):
            if not old.sealed:
                self._sealer.rolled(Roll(old, new, b""))
        self._sealer.synced(self.durable_position)

    def _on_os_error(self, reason: OSError) -> None:
        self._commit.fail(reason)
