"""The log on disk: segments (segment.py), group commit (group_commit.py), the tail cache, and the small state.

::

    append ── SegmentWriter: pwritev, rolls ── LogState, SparseIndex, TailCache ── GroupCommit: fdatasync, marks
                    │ the next segment: Preparer                                        │ rolls that are durable: Sealer
    read ──── TailCache ── FrameReader: page cache, device
    truncate ─ Replay: the state at the cut ── cut: files, durably, in an order that any crash survives
    trim ──── LogState, TailCache at once ── Collector: files, in the background
    reset ─── begin_anew: another first segment ── the old ones
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from dledger.config import Limits, Timings
from dledger.errors import Code, DLedgerError, error
from dledger.storage.api import Boundary, ObserveSync, OnDurable, OnFailure
from dledger.storage.cut import cut
from dledger.storage.disk import FULL
from dledger.storage.frame import Frame
from dledger.storage.group_commit import GroupCommit, Written
from dledger.storage.log_state import LogState, begins_later, read_start
from dledger.storage.preparer import Preparer
from dledger.storage.reader import FrameReader
from dledger.storage.replay import Replay
from dledger.storage.reset import NewBeginning, begin_anew, prepare_beginning
from dledger.storage.retention import Collector, encode_start, unlink_all
from dledger.storage.sealer import Roll, Sealer
from dledger.storage.segment import FIRST_PAGE_BYTES, Segment, corrupt
from dledger.storage.segment_files import SegmentFiles
from dledger.storage.syncer import Syncer
from dledger.storage.tail_cache import TailCache
from dledger.storage.writer import Run, SegmentWriter, UndoFailedError
from dledger.types import Durability, Index, LogPoint, Member, Position, Term, TrimPoint

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
        self._sealer = Sealer(files, self._on_os_error, limits.page_cache_bytes, self._start_collecting)
        self._collector = Collector(files, self._in_use, self._on_os_error)
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
        self._rearranging = asyncio.Lock()  # held by whoever takes segments out of the log, or must find them there
        self._truncated: asyncio.Task[None] | None = None  # the truncation or reset under way
        self._collected: asyncio.Task[None] | None = None  # the removal of trimmed segments under way
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
            raise self._unknown(worse) from worse
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
            self._sealer.rolled(Roll(self._files.active, segment, state.encoder()))
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

    def _unknown(self, worse: UndoFailedError) -> DLedgerError:
        # Some of it may be on the disk, whole, and come back with the next start: that is no refusal.
        self._commit.fail(worse)
        return error(
            Code.TERM_CHANGED,
            f"{self._files.directory} could not be written, nor what was written be taken back ({worse.strerror}): "
            "whether anything was appended is unknown; see to the disk, then restart",
        )

    async def truncate(self, after: Position) -> None:
        state = self._state
        assert self._truncated is None, "a truncation is under way"
        assert after >= state.start.position, f"position {after} lies before the log's start"
        assert after >= min(self.commit_hint, state.last.position), (
            f"position {after} is committed, nothing is cut there"
        )
        if after < state.last.position:
            await self._alone(partial(self._truncate, after), f"truncate-{self.group}")

    async def _alone(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Does ``work``, which replaces frames: reads wait for it, and begin again when they saw the old ones."""
        self._generation += 1

        async def alone() -> None:
            try:
                async with self._rearranging:
                    await self._reader.settle()
                    await self._sealer.pause()
                    try:
                        await work()
                    finally:
                        self._sealer.resume()
                        self._sealer.synced(self.durable_position)
            finally:
                self._truncated = None

        # A task of the log's own: a caller that is cancelled must not leave the work running under a log that closes.
        self._truncated = asyncio.get_running_loop().create_task(alone(), name=name)
        await asyncio.shield(self._truncated)

    async def _truncate(self, after: Position) -> None:
        try:
            async with self._commit.stopped():
                replay = await self._files.disk.run(partial(self._cut, after))
                state, end = replay.state, replay.end
                end.segment.index, end.segment.frames = end.sparse_index, end.frames
                state.begin_at(TrimPoint(self._state.start, self._state.first_index))
                self._state = state
                self._cache.truncate(after)
                self._commit.restarted(Written(end.segment, state.last, end.end_offset))
        except DLedgerError as failure:
            self._commit.refuse(failure)
            raise

    def _cut(self, after: Position) -> Replay:
        files = self._files
        replay = Replay(files, files.ordinal_of(after + 1), self._initial_members)
        replay.run(after)
        end, last = replay.end, replay.state.last
        if last.position != after:
            raise corrupt(end.segment.path, end.end_offset, end.reason or "frames that were appended are missing")
        unsynced = self._commit.unsynced()
        cut(files, end.segment, end.end_offset, last, unsynced=unsynced, commit_hint=self.commit_hint)
        return replay

    async def reset(self, log_state: bytes) -> None:
        assert self._truncated is None, "a truncation is under way"
        if self._commit.failure is not None:
            raise self._commit.failure
        await self._alone(partial(self._reset, log_state), f"reset-{self.group}")

    async def _reset(self, log_state: bytes) -> None:
        files = self._files
        state = await files.disk.run(partial(read_start, self.group, log_state, self.last))
        beginning = await self._prepare_beginning(state)
        self.set_commit_hint(state.last.position)
        async with self._commit.stopped():
            segment = await files.disk.run(partial(begin_anew, files, beginning, self.commit_hint))
            files.segments.append(segment)
            removed = files.begin_with(len(files.segments) - 1)
            self._state = state
            self._cache.truncate(0)
            self._commit.restarted(Written(segment, state.last, FIRST_PAGE_BYTES))
            await files.disk.run(partial(unlink_all, files.disk, str(files.directory), removed))

    async def _prepare_beginning(self, state: LogState) -> NewBeginning:
        size_bytes = self._writer.first_size_bytes()
        try:
            return await self._files.disk.run(partial(prepare_beginning, self._files, state, size_bytes))
        except OSError as reason:
            raise self._refusal(reason) from reason

    async def trim(self, to: TrimPoint) -> None:
        position = to.point.position
        while self._truncated is not None:
            await asyncio.wait([self._truncated])
        if self._commit.failure is not None:
            raise self._commit.failure
        if position > self._state.start.position:
            assert position <= self.last.position, f"position {position} is not in the log, let alone committed"
            await self._check_trim(to)
            self._state.begin_at(to)
            self._cache.begin_behind(position)
        self._start_collecting()
        if self._collected is not None:
            await asyncio.shield(self._collected)

    async def _check_trim(self, to: TrimPoint) -> None:
        segment = self._files.by_position(to.point.position + 1)
        found = TrimPoint(segment.previous, segment.name.base_index)
        if found.point.position != to.point.position:
            header = (await self.read(to.point.position, 1))[0].header
            found = TrimPoint(header.point, header.end_index)
        if found != to:
            message = f"the log holds another frame {to.point.position} than the one that the group trims to"
            raise self._commit.refuse(error(Code.CORRUPT_LOG, message))

    def _start_collecting(self) -> None:
        """Trimmed segments leave the disk: after a trim, and when one of them is not in use any more."""
        if self._collected is not None or self._closed or self._commit.failure is not None:
            return
        if self._collector.has_work(self._state.start.position):
            name = f"collect-{self.group}"
            self._collected = asyncio.get_running_loop().create_task(self._collect(), name=name)

    async def _collect(self) -> None:
        try:
            async with self._rearranging:
                while await self._collector.collect(self._state.start.position):
                    pass  # meanwhile more may have been trimmed, or sealed
        finally:
            self._collected = None

    def _in_use(self, segment: Segment) -> bool:
        return self._sealer.owes(segment) or self._commit.uses(segment)

    async def state_at_start(self) -> bytes:
        async def attempt() -> bytes:
            async with self._rearranging:
                begin = TrimPoint(self._state.start, self._state.first_index)
                return await self._files.disk.run(partial(encode_start, self._files, begin, self._initial_members))

        return await self._undisturbed(attempt)

    def boundaries(self) -> list[Boundary]:
        return self._collector.boundaries(self._state.start.position)

    @property
    def size_bytes(self) -> int:
        return self._files.size_bytes

    @property
    def sync_age_s(self) -> float:
        return self._commit.sync_age_s

    def free_bytes(self) -> int:
        try:
            return self._files.disk.free_bytes(str(self._files.directory))
        except OSError as reason:
            raise self._refusal(reason) from reason

    def cached(self, first: Position, max_bytes: int) -> list[Frame] | None:
        return self._cache.get(first, max_bytes)

    async def read(self, first: Position, max_bytes: int) -> list[Frame]:
        async def attempt() -> list[Frame]:
            if first <= self._state.start.position:
                raise begins_later(f"position {first}", self._state)
            if first > self.last.position:
                return []
            return self._cache.get(first, max_bytes) or await self._reader.from_position(first, max_bytes)

        return await self._undisturbed(attempt)

    async def frame_of(self, index: Index) -> Frame:
        async def attempt() -> Frame:
            state = self._state
            if index < state.first_index:
                raise begins_later(f"record {index}", state)
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
        assert position <= state.last.position, f"position {position} is not in the log"
        if position == state.last.position:
            return state.last
        if position == state.start.position:
            return state.start
        if position < state.start.position:
            raise begins_later(f"position {position}", state)
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
                if generation != self._generation:
                    continue
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
        async with self._rearranging:
            await self._preparer.close()
            await self._reader.settle()
            await self._commit.close()
            await self._sealer.drain()
            self._files.close_all()

    def _finish_rolls(self) -> None:
        """Seals what an earlier start left unsealed."""
        for old, new in zip(self._files.segments, self._files.segments[1:], strict=False):
            if not old.sealed:
                self._sealer.rolled(Roll(old, new, None))
        self._sealer.synced(self.durable_position)

    def _on_os_error(self, reason: OSError) -> None:
        self._commit.fail(reason)
