"""A log that lives in memory, with the interface of the one on disk: for simulations, and as the model in tests."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Entry, Index, LogPoint, Member, NodeId, Position, Term, TrimPoint
from dledger.log.frame.control import check_control
from dledger.log.frame.frame import FILLING, MAX_FRAMES_READ, Frame
from dledger.log.frame.log_snapshot import LogSnapshot, begins_later, read_start
from dledger.log.log_api import (
    Boundary,
    DamagedRange,
    ObserveSync,
    OnDamage,
    OnDurable,
    OnFailure,
    ScrubProgress,
    SegmentSpan,
)


class MemoryLog:
    """Frames in a list. Durable ``sync_delay_ms`` after an append, in groups as on a disk; 0: in the next loop turn."""

    def __init__(
        self,
        group: str,
        initial_members: Sequence[Member] = (),
        *,
        sync_delay_ms: float = 0,
        segment_frames: int = 0,
    ) -> None:
        """``segment_frames``: a boundary lies behind every so many positions; 0: there is none."""
        self.group = group
        self.free_space_bytes = 1 << 40
        """The answer of ``free_bytes``: for tests of a disk that fills up."""
        self.has_no_room = False
        """The device refuses records, at any ``free_bytes``."""
        self._sync_delay_ms = sync_delay_ms
        self._segment_frames = segment_frames
        self._rolled: set[int] = set()
        """Positions behind which a segment was to begin."""
        self._start = LogSnapshot(group, initial_members)  # the state before the first frame kept
        self._state = self._start.copy()
        self._frames: list[Frame] = []
        self._durable = Position(0)
        self._commit_hint = Position(0)
        self._generation = 0
        self._syncing = False
        self._sync_started_s = 0.0
        self.failure: DLedgerError | None = None
        self._on_durable: OnDurable | None = None
        self._on_failure: OnFailure | None = None

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
        return self._durable

    @property
    def commit_hint(self) -> Position:
        return self._commit_hint

    def set_callbacks(
        self,
        on_durable: OnDurable,
        on_failure: OnFailure,
        observe_sync_s: ObserveSync | None = None,
        on_damage: OnDamage | None = None,
    ) -> None:
        self._on_durable = on_durable
        self._on_failure = on_failure

    def append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        assert self._on_durable is not None, "set_callbacks comes before the first append"
        if self.failure is not None:
            raise self.failure
        for frame in frames:
            if not frame.header.count:
                check_control(frame)
        if self.has_no_room and any(each.header.count or each.header.attributes in FILLING for each in frames):
            raise error(Code.DISK_FULL, "the disk has no room: make some; nothing was appended")
        for frame in frames:
            self._state.apply(frame)
        self._frames.extend(frames)
        self._start_sync()

    def roll(self) -> None:
        """A boundary lies behind the last frame."""
        self._rolled.add(self.last.position)

    async def truncate(self, after: Position) -> None:
        lowest = max(self._commit_hint, self._state.start.position)
        assert lowest <= after <= self.last.position, f"{after} is not a position to cut behind"
        self._drop_syncs()
        self._cut(after)
        self._durable = min(self._durable, after)
        self._start_sync()

    def _cut(self, after: Position) -> None:
        del self._frames[after - self._state.start.position :]
        self._state = self._start.copy()
        for frame in self._frames:
            self._state.apply(frame)

    def _drop_syncs(self) -> None:
        self._generation += 1
        self._syncing = False

    async def trim(self, to: TrimPoint) -> None:
        start = self._state.start.position
        gone = to.point.position - start
        if gone <= 0:
            return
        frame = self._frames[gone - 1].header
        if (frame.point, frame.end_index) != to:
            raise error(Code.CORRUPT_LOG, f"the log holds another frame {to.point.position} than the one to trim to")
        for each in self._frames[:gone]:
            self._start.apply(each)
        self._start.begin_at(to)
        self._state.begin_at(to)
        del self._frames[:gone]

    async def reset(self, log_state: bytes) -> None:
        self._start = read_start(self.group, log_state, self.last)
        self._state = self._start.copy()
        self._drop_syncs()
        self._frames.clear()
        self._commit_hint = max(self._commit_hint, self.last.position)
        self._complete(self.last.position)

    async def state_at_start(self) -> bytes:
        return self._start.encode()

    def boundaries(self) -> list[Boundary]:
        if not self._segment_frames and not self._rolled:
            return []
        found: list[Boundary] = []
        size_bytes = 0
        for frame in self._frames[:-1]:
            header = frame.header
            size_bytes += header.stored_bytes
            is_last = header.position in self._rolled or (
                self._segment_frames > 0 and header.position % self._segment_frames == 0
            )
            if is_last and header.position <= self._durable:
                found.append(Boundary(TrimPoint(header.point, header.end_index), header.timestamp_ms, size_bytes))
        return found

    def segments(self) -> list[SegmentSpan]:
        state = self._state
        if state.first_index == state.next_index:
            return []
        return [SegmentSpan(state.first_index, state.next_index, self.size_bytes, state.last_timestamp_ms)]

    @property
    def size_bytes(self) -> int:
        return sum(frame.header.stored_bytes for frame in self._frames)

    @property
    def kept_bytes(self) -> int:
        return self.size_bytes

    @property
    def sync_age_s(self) -> float:
        return asyncio.get_running_loop().time() - self._sync_started_s if self._syncing else 0.0

    def free_bytes(self) -> int:
        return self.free_space_bytes

    async def prove_room(self) -> bool:
        return not self.has_no_room

    def cached(self, first: Position, max_bytes: int) -> list[Frame] | None:
        start = self._state.start.position
        if not start < first <= self.last.position:
            return None
        frames: list[Frame] = []
        size_bytes = 0
        begin = first - start - 1
        for at in range(begin, min(len(self._frames), begin + MAX_FRAMES_READ)):
            size_bytes += self._frames[at].header.stored_bytes
            if frames and size_bytes > max_bytes:
                break
            frames.append(self._frames[at])
        return frames

    async def read(self, first: Position, max_bytes: int) -> list[Frame]:
        if first <= self._state.start.position:
            raise begins_later(f"position {first}", self._state)
        return self.cached(first, max_bytes) or []

    def get_cached(self, index: Index) -> Entry | None:
        return None  # all frames are at hand

    async def prefetch(self, indexes: Sequence[Index]) -> dict[int, Entry]:
        return {}

    async def frame_of(self, index: Index) -> Frame:
        if index < self._state.first_index:
            raise begins_later(f"record {index}", self._state)
        if index >= self._state.next_index:
            raise error(
                Code.INDEX_OUT_OF_RANGE,
                f"there is no record {index}; the last is {self._state.last_index}",
                last_index=self._state.last_index,
            )
        return self._frames[bisect_right(self._frames, int(index), key=lambda frame: frame.header.end_index)]

    async def point_at(self, position: Position) -> LogPoint:
        start = self._state.start
        if position < start.position:
            raise begins_later(f"position {position}", self._state)
        assert position <= self.last.position, f"position {position} is not in the log"
        if position == start.position:
            return start
        return self._frames[position - start.position - 1].header.point

    def term_at(self, position: Position) -> Term:
        return self._state.term_at(position)

    def damaged(self) -> list[DamagedRange]:
        return []  # memory does not rot

    async def repair(self, damaged: DamagedRange, frames: Sequence[Frame]) -> None:
        raise AssertionError("nothing is damaged")

    async def scrub(self, position: Position) -> Position:
        return Position(self.last.position + 1)

    async def scrub_progress(self) -> ScrubProgress | None:
        return None

    async def keep_scrub_progress(self, progress: ScrubProgress) -> None:
        """Nothing."""

    def set_commit_hint(self, position: Position) -> None:
        self._commit_hint = max(self._commit_hint, position)

    async def close(self) -> None:
        """Completes what is not durable yet. The frames stay: the same object can be opened again."""
        self._drop_syncs()
        if self.failure is None:
            self._complete(self.last.position)

    def reopen(self) -> None:
        """As after a crash and a restart: what was not durable is gone, callbacks are to be set again."""
        self._drop_syncs()
        self._on_durable = self._on_failure = None
        self.failure = None
        self._cut(self._durable)

    def fail_sync(self) -> None:
        """The next, and every later, sync fails: DISK_ERROR, once."""
        self._drop_syncs()
        self.failure = error(Code.DISK_ERROR, "fdatasync failed: restart the node when its disk is sound")
        if self._on_failure is not None:
            asyncio.get_running_loop().call_soon(self._on_failure, self.failure)

    def _start_sync(self) -> None:
        if self._syncing or self.failure is not None or self._durable == self.last.position:
            return
        self._syncing = True
        loop = asyncio.get_running_loop()
        self._sync_started_s = loop.time()
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
