"""Reads: committed records only, in order, without gaps.

A linearizable read learns the commit position from a leader that a quorum has just confirmed (read index, Ongaro's
dissertation §6.4). All reads that come while a round is under way share the next. With leases on, a leader with a lease
answers without asking. Committed reads are answered by any node, learners too, as far as it knows of commits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import chain, takewhile
from typing import NamedTuple

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.futures import release
from dledger.common.types import Consistency, Entry, Index, Position
from dledger.group.context import GroupContext
from dledger.log.frame.frame import Frame

TURN_BYTES = 1 << 20
"""After so much of frames others have their turn."""
FRAME_COST_BYTES = 4096
"""What looking for a frame takes beside its bytes, in bytes."""
SLOW_MESSAGE_BYTES = 256 << 10
"""About how much one message to a slow reader carries, if not more of it can leave soon."""
PREFETCHED_AT_A_TIME = 64
"""Records of one get that are read from the device side by side."""


class ReadPoint(NamedTuple):
    """How far a read may see."""

    commit_position: Position
    commit_index: int


class Reader:
    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._log = context.log
        self._patience_s = context.config.timings.quorum_ack_timeout_ms / 1000
        self._waiting: dict[asyncio.Future[None], float] = {}
        """Reads before their round, each with the time since which it waits, in the order of their coming."""
        self._asked: dict[asyncio.Future[None], float] = {}
        """Reads in the round that is under way; all of them came before those."""
        self._round = 0
        self._is_asking = False
        """Whether a round is under way, also when nobody waits for it any more."""
        self._commit_watchers: dict[asyncio.Future[None], None] = {}
        """In the order in which they came, and so are they woken."""
        self._turn_bytes = 0
        """Of frames that were read since the loop last went round."""
        self._closed: DLedgerError | None = None
        self.commit_index = -1

    # Read index --------------------------------------------------------------------------------------------------

    async def read_point(self, consistency: Consistency) -> ReadPoint:
        """Raises NOT_LEADER for a linearizable read at a node that does not lead, or stops leading meanwhile. Raises
        LEADER_NOT_READY when no quorum lets it answer within ``quorum_ack_timeout_ms``."""
        if consistency is Consistency.LINEARIZABLE:
            self._context.admission.check_reader()
            if not self._context.core.has_lease(self._context.now_ms()):
                await self._next_round()
        return ReadPoint(self._context.core.commit_position, self.commit_index)

    async def _next_round(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = self._context.now_s()
        self.begin_round()
        try:
            await future
        finally:
            self._waiting.pop(future, None)
            self._asked.pop(future, None)

    def begin_round(self) -> None:
        """Asks the quorum on behalf of all waiting reads, unless a round is under way or the term has not committed
        yet."""
        core = self._context.core
        if not self._waiting or self._is_asking or not core.is_ready:
            return
        self._asked, self._waiting, self._is_asking = self._waiting, {}, True
        self._context.metrics.read_index_rounds += 1
        self._round = core.begin_read_round(self._context.now_ms())
        self._context.run_effects()

    def on_confirmed(self, round_number: int) -> None:
        if self._is_asking and round_number >= self._round:
            asked, self._asked, self._is_asking = self._asked, {}, False
            for future in asked:
                release(future)
            self.begin_round()

    def expire(self, now_s: float, refusal: Callable[[], DLedgerError]) -> None:
        """Tells ``refusal`` to reads that have waited for a quorum as long as an append may."""
        began_s = now_s - self._patience_s
        waiting = chain(self._asked.items(), self._waiting.items())
        late = [future for future, _ in takewhile(lambda each: each[1] <= began_s, waiting)]
        if late:
            _refuse(late, refusal())

    def fail_all(self, refusal: DLedgerError) -> None:
        _refuse([*self._asked, *self._waiting], refusal)
        self._asked, self._waiting, self._is_asking = {}, {}, False

    def close(self, refusal: DLedgerError) -> None:
        """The node stops: readers that wait for a later commit are told, and so are readers that come later."""
        self._closed = refusal
        for watcher in self._commit_watchers:
            release(watcher)

    # Commit ------------------------------------------------------------------------------------------------------

    def on_commit(self, commit_index: int) -> None:
        self.commit_index = commit_index
        self.begin_round()
        watchers, self._commit_watchers = self._commit_watchers, {}
        for watcher in watchers:
            release(watcher)

    async def wait_for_commit(self) -> None:
        """Until the commit position has moved. Raises what the node was closed with."""
        self._check_closed()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commit_watchers[future] = None
        try:
            await future
        finally:
            self._commit_watchers.pop(future, None)
        self._check_closed()

    def _check_closed(self) -> None:
        if self._closed is not None:
            raise self._closed.copy()

    # Records -----------------------------------------------------------------------------------------------------

    def _check_range(self, index: int, commit_index: int) -> None:
        first_index = self._log.state.first_index
        if index < first_index:
            raise self._trimmed(index, commit_index)
        if index > commit_index:
            reach = f"the last is {commit_index}" if commit_index >= 0 else "there is none yet"
            raise error(
                Code.INDEX_OUT_OF_RANGE,
                f"no record is committed at index {index}; {reach}",
                first_index=first_index,
                commit_index=commit_index,
            )

    def _trimmed(self, index: int, commit_index: int) -> DLedgerError:
        first_index = self._log.state.first_index
        what = f"index {index} is not in the log any more" if index >= 0 else f"index {index} is negative"
        return error(
            Code.INDEX_LESS_THAN_LOCAL_BEGIN,
            f"{what}; the first is {first_index}",
            first_index=first_index,
            commit_index=commit_index,
        )

    async def _frame_of(self, index: int, commit_index: int) -> Frame:
        """Raises INDEX_LESS_THAN_LOCAL_BEGIN also if the log was trimmed, or begun anew, a moment ago."""
        await self._turn()
        self._check_closed()
        try:
            frame = await self._log.frame_of(Index(index))
        except DLedgerError as failure:
            raise self._for_reader(failure, index, commit_index) from failure
        self._charge(frame.header.stored_bytes)
        return frame

    async def _at_hand(self, index: int) -> Entry | None:
        if self._turn_bytes >= TURN_BYTES:
            await self._turn()
        entry = self._log.get_cached(Index(index))
        if entry is not None:
            self._charge(len(entry.value))
        return entry

    async def _turn(self) -> None:
        """Waits for its turn. Frames in the page cache are read and checked without a pause, about 1 ms a MiB. Between
        two large frames the loop has heartbeats to send."""
        while self._turn_bytes >= TURN_BYTES:  # noqa: ASYNC110  # the loop going round is what is awaited
            await asyncio.sleep(0)

    def _charge(self, size_bytes: int) -> None:
        if not self._turn_bytes:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._turn_bytes += FRAME_COST_BYTES + size_bytes

    def _begin_turn(self) -> None:
        self._turn_bytes = 0

    def _for_reader(self, failure: DLedgerError, index: int, commit_index: int) -> DLedgerError:
        is_trimmed = failure.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN
        return self._trimmed(index, commit_index) if is_trimmed else failure

    async def get(self, index: int, point: ReadPoint) -> Entry:
        """One record at or before ``point``. Raises INDEX_OUT_OF_RANGE, INDEX_LESS_THAN_LOCAL_BEGIN, CORRUPT_LOG."""
        (found,) = await self.get_many([index], point)
        if isinstance(found, DLedgerError):
            raise found
        return found

    async def get_many(self, indexes: Sequence[int], point: ReadPoint) -> list[Entry | DLedgerError]:
        """The record at each index, or why there is none, in the order asked. What has to come from the device is read
        side by side.

        Raises BATCH_TOO_LARGE when the records together exceed a batch.
        """
        self._check_closed()
        found: dict[int, Entry | DLedgerError] = {}
        times = Counter(indexes)
        bulk = _Bulk(times, self._context.config.limits.max_batch_bytes)
        cold: list[Index] = []
        for index in sorted(times):
            try:
                self._check_range(index, point.commit_index)
            except DLedgerError as refusal:
                found[index] = refusal
                continue
            entry = await self._at_hand(index)
            if entry is None:
                cold.append(Index(index))
            else:
                found[index] = bulk.counted(entry)
        frame: Frame | None = None
        brought: dict[int, Entry] = {}
        for number, index in enumerate(cold):
            if number % PREFETCHED_AT_A_TIME == 0:
                brought = await self._log.prefetch(cold[number : number + PREFETCHED_AT_A_TIME])
            try:
                if frame is not None and index < frame.header.end_index:
                    entry = frame.entry(index)
                elif index in brought:
                    entry = brought[index]
                    self._charge(len(entry.value))
                elif (entry := await self._at_hand(index)) is None:
                    frame = await self._frame_of(index, point.commit_index)
                    entry = frame.entry(index)
            except DLedgerError as refusal:
                found[index] = refusal
                continue
            found[index] = bulk.counted(entry)
        self._context.metrics.reads += bulk.records
        return [found[index] for index in indexes]

    async def read(
        self,
        start: int,
        end: int | None,
        point: ReadPoint,
        *,
        follow: bool,
        turn: Callable[[], Awaitable[int]] | None = None,
    ) -> AsyncIterator[tuple[list[Frame], int]]:
        """Committed data frames from record ``start`` on, with the commit index known at the time.

        Frames may be large, and readers many. So the caller alone keeps those of a list, and ``turn`` is awaited before
        any are read: it returns how many bytes the caller can pass on soon. Where that is little, less is read.

        Ends before record ``end`` when one is given, else at ``point``, else, with ``follow``, never. The first frame
        may begin before ``start`` and the last reach past ``end``. ``start`` may be one past the last record.

        Raises INDEX_LESS_THAN_LOCAL_BEGIN when the log is trimmed, or begins anew, past where the reader stands.
        """
        beyond = start > point.commit_index
        if not (beyond and (follow or start == point.commit_index + 1)):
            self._check_range(start, point.commit_index)
        if end is not None and start >= end:
            return
        last_index = point.commit_index + 1 if end is None else end
        while follow and self.commit_index < start:
            await self.wait_for_commit()
        if start > self.commit_index or (not follow and start >= last_index):
            return
        if turn is not None:
            await turn()
        position: int = (await self._frame_of(start, point.commit_index)).header.position
        next_index = start
        while True:
            limit = self._context.core.commit_position if follow else point.commit_position
            if position > limit:
                if not follow:
                    return
                await self.wait_for_commit()
                continue
            try:
                frames = await self._frames(Position(position), limit, await self._message_bytes(turn))
            except DLedgerError as failure:
                raise self._for_reader(failure, next_index, self.commit_index) from failure
            position, next_index = frames[-1].header.position + 1, frames[-1].header.end_index
            data = [f for f in frames if f.header.count and (end is None or f.header.base_index < end)]
            self._context.metrics.reads += len(data)
            del frames
            if data:
                yield data, self.commit_index
            if end is not None and next_index >= end:
                return

    async def again(self, first: Position, last: Position) -> list[Frame]:
        """The data frames at these positions, which ``read`` gave before. Raises as it does."""
        found: list[Frame] = []
        position = first
        while position <= last:
            frames = await self._frames(position, last, self._context.config.limits.read_message_bytes)
            found += [frame for frame in frames if frame.header.count]
            position = Position(frames[-1].header.position + 1)
        return found

    async def _message_bytes(self, turn: Callable[[], Awaitable[int]] | None) -> int:
        most_bytes = self._context.config.limits.read_message_bytes
        return most_bytes if turn is None else min(most_bytes, max(await turn(), SLOW_MESSAGE_BYTES))

    async def records(self, start: int, point: ReadPoint, *, follow: bool) -> AsyncIterator[Entry]:
        """As ``read``, record by record, from ``start`` on: for a reader in the node's own process."""
        async for frames, _ in self.read(start, None, point, follow=follow):
            for frame in frames:
                for entry in frame.entries(start):
                    yield entry

    async def _frames(self, position: Position, limit: Position, max_bytes: int) -> list[Frame]:
        self._check_closed()
        frames = self._log.cached(position, max_bytes) or await self._log.read(position, max_bytes)
        if frames[-1].header.position > limit:
            frames = [frame for frame in frames if frame.header.position <= limit]
        return frames


def _refuse(waiting: Iterable[asyncio.Future[None]], refusal: DLedgerError) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(refusal.copy())


class _Bulk:
    """How much one answer holds. ``times``: how often each index was asked for."""

    def __init__(self, times: Counter[int], max_bytes: int) -> None:
        self._times = times
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self.records = 0

    def counted(self, entry: Entry) -> Entry:
        """Raises BATCH_TOO_LARGE when it is too much."""
        times = self._times[entry.index]
        self.records += times
        self._size_bytes += times * len(entry.value)
        if self._size_bytes > self._max_bytes:
            raise error(Code.BATCH_TOO_LARGE, f"the records have over {self._max_bytes} bytes; ask for fewer at once")
        return entry
