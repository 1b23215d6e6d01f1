"""The log on disk: segments (segment.py), group commit (disk/group_commit.py), the tail cache, and the small state.

::

    append ── SegmentWriter: pwritev, rolls ── LogSnapshot, SparseIndex, TailCache ── GroupCommit: fdatasync, marks
                    │ the next segment: Preparer                                        │ rolls that are durable: Sealer
    read ──── LogReader: TailCache ── FrameReader: page cache, device ── no match: Inspection, DamageInspector
    truncate ─ LogRewriteLock: alone ── Replay: the state at the cut ── cut: files, in an order that any crash survives
    trim ──── LogSnapshot, TailCache at once ── Collector: files, in the background
    reset ─── begin_anew: another first segment ── the old ones
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import pairwise

from dledger.common.config import Limits, Timings
from dledger.common.errors import Code, CorruptLog, DLedgerError, error
from dledger.common.types import Durability, Entry, Index, LogPoint, Member, NodeId, Position, Term, TrimPoint
from dledger.disk.disk import FULL, run_to_the_end
from dledger.disk.group_commit import GroupCommit
from dledger.disk.reserve import Reserve
from dledger.disk.syncer import Syncer
from dledger.log.cut import cut
from dledger.log.damage.damage_inspector import DamageInspector
from dledger.log.damage.inspection import Inspection
from dledger.log.damage.scrub import Scrub
from dledger.log.frame.frame import FILLING, Frame
from dledger.log.frame.log_snapshot import LogSnapshot, read_start
from dledger.log.log_api import (
    Boundary,
    Damaged,
    DamagedRange,
    ObserveSync,
    OnDamage,
    OnDurable,
    OnFailure,
    ScrubProgress,
    SegmentSpan,
)
from dledger.log.log_reader import LogReader
from dledger.log.log_rewrite_lock import LogRewriteLock
from dledger.log.recovery.report import RecoveryReport
from dledger.log.recovery.tail_replay import Replay
from dledger.log.reset import NewBeginning, begin_anew, prepare_beginning
from dledger.log.segment.damage import Reach
from dledger.log.segment.preparer import Preparer
from dledger.log.segment.sealer import Roll, Sealer
from dledger.log.segment.segment import FIRST_PAGE_BYTES, Segment, corrupt
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.snapshot_file import keep_twice
from dledger.log.segment.sync_marks import SyncMarks, log_end
from dledger.log.segment.tail_cache import TailCache
from dledger.log.segment.writer import Run, SegmentWriter, UndoFailedError
from dledger.log.trim import Collector, encode_start, unlink_all


class FileLog:
    """A log in a directory; made by ``recovery.open_log``. See ``api.Log`` for what each method promises."""

    def __init__(
        self,
        files: SegmentFiles,
        state: LogSnapshot,
        *,
        durability: Durability,
        limits: Limits,
        timings: Timings,
        initial_members: Sequence[Member],
        commit_hint: int,
        recovery: RecoveryReport,
        reserve: Reserve,
    ) -> None:
        """Everything in ``files`` is durable and marked, and ``state`` is the state after it. ``reserve`` is the one of
        the file system, which other logs may share."""
        self.group = files.group
        self.recovery = recovery
        """What the start found."""
        self._files = files
        self._state = state
        self._initial_members = tuple(initial_members)
        self._cache = TailCache(limits.tail_cache_bytes)
        self._inspector = DamageInspector(files)
        self._scrub = Scrub(files, self._inspector, self._reach)
        self._reserve = reserve
        self._sealer = Sealer(
            files, self._on_os_error, limits.page_cache_bytes, self._start_collecting, take_reserve=reserve.take
        )
        self._preparer = Preparer(files, self._on_os_error)
        self._writer = SegmentWriter(files, self._preparer, limits)
        self._syncer: Syncer = files.disk.syncer()
        self._marks = SyncMarks(files, Position(commit_hint))
        self._commit = GroupCommit(
            files,
            str(files.directory),
            syncer=self._syncer,
            write_mark=self._marks.write,
            durability=durability,
            timings=timings,
            end=log_end(files.active, state.last, files.active.end_offset),
            on_synced=self._sealer.synced,
        )
        self._rewrite_lock = LogRewriteLock(files.group)
        self._collector = Collector(
            files,
            self._rewrite_lock,
            lambda: self._state.start.position,
            self._in_use,
            self._on_os_error,
            members=self._initial_members,
        )
        self._inspection = Inspection(files, self._inspector, self._rewrite_lock, self._reach, self._commit.refuse)
        self._reader = LogReader(files, self._cache, self._rewrite_lock, self._inspection, lambda: self._state)
        self._closed = False
        self._inspector.begin_at(state.begin)
        self._finish_rolls()

    @property
    def state(self) -> LogSnapshot:
        return self._state

    @property
    def last(self) -> LogPoint:
        return self._state.last

    @property
    def voters(self) -> tuple[NodeId, ...]:
        return self._state.voters

    @property
    def durable_position(self) -> Position:
        return Position(self._commit.durable)

    @property
    def commit_hint(self) -> Position:
        return self._marks.commit_hint

    @property
    def failure(self) -> DLedgerError | None:
        return self._commit.failure

    def set_callbacks(
        self,
        on_durable: OnDurable,
        on_failure: OnFailure,
        observe_sync_s: ObserveSync | None = None,
        on_damage: OnDamage | None = None,
    ) -> None:
        self._inspector.on_damage = on_damage
        self._commit.observe_sync_s = observe_sync_s
        self._commit.on_durable = lambda sequence: on_durable(Position(sequence))
        self._commit.on_failure = on_failure
        if self._commit.failure is not None:
            on_failure(self._commit.failure)

    def append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        assert self._commit.on_durable is not None, "set_callbacks comes before the first append"
        assert not self._rewrite_lock.is_replacing, "a truncation is under way"
        assert not self._closed, "the log is closed"
        if self._commit.failure is not None:
            raise self._commit.failure
        if not frames:
            return
        state = self._state
        try:
            runs = self._write(frames)
        except UndoFailedError as worse:
            raise self._unknown(worse) from worse
        except OSError as reason:
            raise self._files.unwritable(reason) from reason
        for run in runs:
            self._take(run)
        self._writer.prepare_next()
        self._cache.extend(frames)
        active = self._files.active
        end = log_end(active, state.last, active.end_offset)
        self._commit.written([run.segment for run in runs], end, after_turn=sync_after_turn)

    def roll(self) -> None:
        self._writer.roll()

    def _write(self, frames: Sequence[Frame]) -> list[Run]:
        write = partial(self._writer.write, frames, self._state.last, self._state.next_index, self._marks.commit_hint)
        try:
            return write()
        except UndoFailedError:
            raise
        except OSError as reason:
            is_filling = any(frame.header.count or frame.header.attributes in FILLING for frame in frames)
            if reason.errno not in FULL or is_filling or not self._reserve.take():
                raise
        return write()

    def _take(self, run: Run) -> None:
        segment, state = run.segment, self._state
        if run.is_new:
            self._sealer.rolled(Roll(self._files.active, segment, state.encoder()))
            self._files.segments.append(segment)
            self._commit.rolled()
        index = segment.index
        assert index is not None, "the active segment has its index at hand"
        for frame, offset in zip(run.frames, run.offsets, strict=True):
            state.apply(frame)
            index.add(frame, offset)
        segment.frames += len(run.frames)
        segment.end_offset = run.end_offset

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
        assert not self._rewrite_lock.is_replacing, "a truncation is under way"
        assert after >= state.start.position, f"position {after} lies before the log's start"
        assert after >= min(self.commit_hint, state.last.position), (
            f"position {after} is committed, nothing is cut there"
        )
        failed_at: dict[str, str] = {}
        while after < self._state.last.position:
            changes = self._inspection.changes
            try:
                await self._rewrite_lock.replace(partial(self._replace, partial(self._truncate, after)), "truncate")
            except CorruptLog as failure:
                if self._commit.failure is not None:
                    raise
                # Nothing was cut.
                await self._inspection.look_into(failure, changes, is_again=failure.metadata == failed_at)
                failed_at = failure.metadata

    async def _replace(self, work: Callable[[], Awaitable[None]]) -> None:
        """``work``, which replaces frames, while nothing else touches the files."""
        await self._reader.settle()
        self._reader.forget()
        await self._sealer.pause()
        try:
            await work()
        finally:
            self._sealer.resume()
            self._sealer.synced(self._commit.synced_sequence)

    async def _truncate(self, after: Position) -> None:
        async with self._commit.stopped():
            replay = await self._files.disk.run(partial(self._replay, after))
            await self._files.disk.run(partial(self._cut, replay))
            state, end = replay.state, replay.end
            end.segment.index, end.segment.frames = end.sparse_index, end.frames
            state.begin_at(self._state.begin)
            self._state = state
            self._cache.truncate(after)
            self._commit.restarted(log_end(end.segment, state.last, end.end_offset))
            self._inspector.end_at(after)

    def _replay(self, after: Position) -> Replay:
        files = self._files
        replay = Replay(files, files.ordinal_of(after + 1), self._initial_members)
        replay.run(after)
        end = replay.end
        if replay.state.last.position != after:
            raise corrupt(end.segment.path, end.end_offset, end.reason or "frames that were appended are missing")
        return replay

    def _cut(self, replay: Replay) -> None:
        end, last = replay.end, replay.state.last
        unsynced = self._commit.unsynced()
        cut(self._files, end.segment, end.end_offset, last, unsynced=unsynced, commit_hint=self.commit_hint)

    async def reset(self, log_state: bytes) -> None:
        assert not self._rewrite_lock.is_replacing, "a truncation is under way"
        if self._commit.failure is not None:
            raise self._commit.failure
        await self._rewrite_lock.replace(partial(self._replace, partial(self._reset, log_state)), "reset")

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
            self._commit.restarted(log_end(segment, state.last, FIRST_PAGE_BYTES))
            self._inspector.begin_at(state.begin)
            await files.disk.run(partial(unlink_all, files.disk, str(files.directory), removed))

    async def _prepare_beginning(self, state: LogSnapshot) -> NewBeginning:
        prepare = partial(prepare_beginning, self._files, state, self._writer.first_size_bytes())

        def in_the_reserve() -> NewBeginning:
            try:
                return prepare()
            except OSError as reason:
                if reason.errno not in FULL or not self._reserve.take():
                    raise
            return prepare()

        try:
            return await self._files.disk.run(in_the_reserve)
        except OSError as reason:
            raise self._files.unwritable(reason) from reason

    async def trim(self, to: TrimPoint) -> None:
        position = to.point.position
        await self._rewrite_lock.settle()
        if self._commit.failure is not None:
            raise self._commit.failure
        if position > self._state.start.position:
            assert position <= self.last.position, f"position {position} is not in the log, let alone committed"
            await self._check_trim(to)
            self._state.begin_at(to)  # which does nothing where a reset was quicker
            self._cache.begin_behind(position)
            self._inspector.begin_at(self._state.begin)
        self._start_collecting()
        await self._collector.settle()

    async def _check_trim(self, to: TrimPoint) -> None:
        segment = self._files.by_position(to.point.position + 1)
        found = TrimPoint(segment.previous, segment.name.base_index)
        if segment.previous.position != to.point.position:
            found = await self._trim_point(to)
        if found != to:
            message = f"the log holds another frame {to.point.position} than the one that the group trims to"
            raise self._commit.refuse(error(Code.CORRUPT_LOG, message))

    async def _trim_point(self, to: TrimPoint) -> TrimPoint:
        """The trim point that this log has at the position of ``to``.

        ``to`` itself if this log begins further on by now. Also if that frame is damaged here. No node may have it any
        more, and the chain proves ``to`` when the frames behind it are repaired.
        """
        try:
            header = (await self.read(to.point.position, 1))[0].header
        except Damaged:
            return to
        except DLedgerError as overtaken:
            if overtaken.code is not Code.INDEX_LESS_THAN_LOCAL_BEGIN:
                raise
            return to
        return TrimPoint(header.point, header.end_index)

    def _start_collecting(self) -> None:
        if not self._closed and self._commit.failure is None:
            self._collector.begin()

    def _in_use(self, segment: Segment) -> bool:
        return self._sealer.owes(segment) or self._commit.uses(segment)

    async def state_at_start(self) -> bytes:
        async def attempt() -> bytes:
            async with self._rewrite_lock.lock:
                encode = partial(encode_start, self._files, self._state.begin, self._initial_members)
                return await self._files.disk.run(encode)

        return await self._reader.undisturbed(attempt)

    def boundaries(self) -> list[Boundary]:
        return self._collector.boundaries()

    def segments(self) -> list[SegmentSpan]:
        return self._files.spans(self._state)

    @property
    def size_bytes(self) -> int:
        return self._files.size_bytes

    @property
    def kept_bytes(self) -> int:
        first = self._files.by_position(Position(self._state.start.position + 1))
        return sum(each.size_bytes for each in self._files.segments if each.name >= first.name)

    @property
    def sync_age_s(self) -> float:
        return self._commit.sync_age_s

    def cached(self, first: Position, max_bytes: int) -> list[Frame] | None:
        return self._cache.get(first, max_bytes)

    async def read(self, first: Position, max_bytes: int) -> list[Frame]:
        return await self._reader.read(first, max_bytes)

    def get_cached(self, index: Index) -> Entry | None:
        return self._reader.get_cached(index)

    async def prefetch(self, indexes: Sequence[Index]) -> dict[int, Entry]:
        return await self._reader.prefetch(indexes)

    async def frame_of(self, index: Index) -> Frame:
        return await self._reader.frame_of(index)

    async def point_at(self, position: Position) -> LogPoint:
        return await self._reader.point_at(position)

    # Damage ------------------------------------------------------------------------------------------------------

    def damaged(self) -> list[DamagedRange]:
        return self._files.damage.ranges()

    async def repair(self, damaged: DamagedRange, frames: Sequence[Frame]) -> None:
        async with self._rewrite_lock.lock:
            try:
                await self._inspector.repair(damaged, frames)
            except OSError as reason:
                raise self._commit.fail(reason) from reason
        self._finish_rolls()

    async def scrub(self, position: Position) -> Position:
        async with self._rewrite_lock.lock:
            segment = self._files.segments[0]
            first = segment.name.base_position
            try:
                if position <= first:
                    await run_to_the_end(self._files.disk, partial(keep_twice, self._files.disk, segment))
                return await self._scrub.step(Position(max(position, first)))
            except OSError as reason:
                raise self._files.unreadable(reason) from reason

    async def scrub_progress(self) -> ScrubProgress | None:
        try:
            return await self._files.disk.run(self._scrub.load)
        except OSError:
            return None  # then it begins anew

    async def keep_scrub_progress(self, progress: ScrubProgress) -> None:
        async with self._rewrite_lock.lock:  # a close waits for it
            try:
                await run_to_the_end(self._files.disk, partial(self._scrub.save, progress))
            except OSError as reason:
                raise self._files.unwritable(reason) from reason

    def _reach(self, segment: Segment) -> Reach:
        return self._files.reach_of(segment, self._state.last, self._state.next_index)

    def term_at(self, position: Position) -> Term:
        return self._state.term_at(position)

    def set_commit_hint(self, position: Position) -> None:
        self._marks.commit_hint = max(self._marks.commit_hint, position)

    async def close(self, *, in_order: bool = True) -> None:
        """Not ``in_order``: the next start takes this one for a crash, and owes what it would have owed itself."""
        if self._closed:
            return
        self._closed = True
        await self._inspection.settle()
        await self._rewrite_lock.settle()
        await self._collector.settle()
        async with self._rewrite_lock.lock:
            await self._preparer.close()
            await self._reader.settle()
            await self._commit.close(in_order=in_order)
            await self._sealer.drain()
            self._files.close_all()

    def _finish_rolls(self) -> None:
        """Seals segments that an earlier start left unsealed, but not one that waits for its repair."""
        for old, new in pairwise(self._files.segments):
            if not (old.sealed or self._sealer.owes(old) or self._files.damage.of(old)):
                self._sealer.rolled(Roll(old, new, None))
        self._sealer.synced(self._commit.synced_sequence)

    def _on_os_error(self, reason: OSError) -> None:
        self._commit.fail(reason)
