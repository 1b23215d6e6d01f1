"""Gets, coalesced: concurrent calls share the messages of one GetStream, a few of which are in flight.

A get changes nothing. So after any failure it is asked again, of a node that can answer then, until its time runs out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from dledger.client.append_queue import TICK_S
from dledger.client.stubs import LogStubs
from dledger.common.backoff import Backoff
from dledger.common.errors import CODES, Code, DeadlineExceeded, DLedgerError, InternalError, Unavailable, error
from dledger.common.futures import release
from dledger.common.types import Consistency, Entry
from dledger.rpc.client.cancellation import client_closed, task_cancelled
from dledger.rpc.client.failures import code_named
from dledger.rpc.client.pipelined_stream import PipelinedStream
from dledger.rpc.client.retry import ASKS_ELSEWHERE, NOT_THIS_NODE, PASSING
from dledger.v1 import log_pb2

if TYPE_CHECKING:
    import random

    from dledger.client.leader_locator import LeaderLocator
    from dledger.client.waits import Waits

WINDOW = 4
"""Messages in flight."""
MOST_QUEUED = 100_000
"""Gets that wait to be asked; those given up count for a tick at most."""
MOST_INDEXES = 512
"""Indexes in one message, at most; fewer when the records seen are large."""
ANSWER_BYTES = 4 << 20
"""About how large an answer may get."""

WIRE_CONSISTENCY = {
    Consistency.LINEARIZABLE: log_pb2.CONSISTENCY_LINEARIZABLE,
    Consistency.COMMITTED: log_pb2.CONSISTENCY_COMMITTED,
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Get:
    index: int
    future: asyncio.Future[Entry]
    deadline: float


class Getter:
    """The gets of one consistency at one place: the leader, any node, or the node named."""

    def __init__(
        self,
        leaders: LeaderLocator,
        group: str,
        consistency: Consistency,
        node: str | None,
        *,
        rng: random.Random,
        waits: Waits,
    ) -> None:
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._leaders = leaders
        self._group = group
        self._consistency = consistency
        self._node = node
        self._backoff = Backoff(rng)
        self._queued: deque[_Get] = deque()
        self._in_flight: deque[list[_Get]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._largest_bytes = ANSWER_BYTES // 64
        self._last_refusal: DLedgerError | None = None
        name = f"dledger-get {consistency.value} {node or ''}".strip()
        self._is_closing = False
        self._task = asyncio.create_task(self._run(), name=name)
        self._task.add_done_callback(self._ended)

    @property
    def is_running(self) -> bool:
        return not self._task.done()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A program may cancel all tasks of its loop, this one among them: waiting callers are told at once."""
        if task.cancelled() and not self._is_closing:
            self._end(task_cancelled())

    def get(self, index: int, timeout_ms: float) -> asyncio.Future[Entry]:
        """Queues one get. Raises PendingFull."""
        if len(self._queued) >= MOST_QUEUED:
            raise error(Code.LEADER_PENDING_FULL, f"{MOST_QUEUED} gets wait already: await some of them first")
        future: asyncio.Future[Entry] = self._loop.create_future()
        self._queued.append(_Get(index, future, self._loop.time() + timeout_ms / 1000))
        self._wake()
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_S, self._tick)
        return future

    async def close(self) -> None:
        """Ends what is pending with Unavailable."""
        self._is_closing = True
        self._task.cancel()
        await asyncio.wait({self._task})
        self._end(client_closed())

    def _end(self, reason: DLedgerError) -> None:
        self._take_back()
        while self._queued:
            _fail(self._queued.popleft(), reason)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        release(self._waiter)

    async def _ready(self) -> None:
        """Returns when there is something to ask and room to ask it."""
        while not self._queued or len(self._in_flight) >= WINDOW:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _take(self) -> list[_Get]:
        room = max(1, min(MOST_INDEXES, ANSWER_BYTES // self._largest_bytes))
        taken = list(islice(self._queued, room))
        for _ in taken:
            self._queued.popleft()
        return [get for get in taken if not get.future.done()]

    def _take_back(self) -> None:
        """Everything unanswered is asked again first, in the order it was."""
        while self._in_flight:
            self._queued.extendleft(reversed(self._in_flight.pop()))

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        for get in (*self._queued, *(get for message in self._in_flight for get in message)):
            if get.deadline <= now:
                _fail(get, self._overdue(get.index))
        if any(get.future.done() for get in self._queued):
            # A caller that gave up takes no room from others, however long nobody can be asked.
            self._queued = deque(get for get in self._queued if not get.future.done())
        if self._queued or self._in_flight:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _overdue(self, index: int) -> DLedgerError:
        refusal = self._last_refusal
        if refusal is None:
            return DeadlineExceeded(f"record {index} was not answered in time")
        text = f"record {index} was not answered in time: {refusal}"
        return Unavailable(text, code=refusal.code) if isinstance(refusal, Unavailable) else DeadlineExceeded(text)

    # One stream after the other ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._ready()
            try:
                await self._attempt()
            except Exception as bug:  # waiting callers are told, once; the next stream begins anew
                logger.exception("a stream of gets ended on a bug")
                self._end(InternalError(f"the client's gets met a bug: {bug!r}; please report it"))

    async def _attempt(self) -> None:
        address = ""
        try:
            endpoint = await self._leaders.route(self._node, self._consistency)
            address = endpoint.address
            leaders = self._leaders if self._node is None else None
            refusal = await PipelinedStream(endpoint.stub(LogStubs).get_stream(), address, self, leaders).hold()
        except DLedgerError as unreachable:
            refusal = unreachable
        self._take_back()
        self._last_refusal = refusal
        if refusal.code is Code.BATCH_TOO_LARGE and self._largest_bytes < ANSWER_BYTES:
            self._largest_bytes = ANSWER_BYTES  # The answer was too large for one message: one record at a time, then.
            return
        if refusal.code in ASKS_ELSEWHERE:
            self._leaders.lost(address, refusal)
        if not self._passes(refusal.code):
            while self._queued:
                _fail(self._queued.popleft(), refusal)
        elif self._queued:
            self._waits.refused(refusal)
        await asyncio.sleep(self._backoff.next_s())

    def _passes(self, code: Code) -> bool:
        """Whether to ask again. If a node was asked by name and says it is the wrong one, this will not pass."""
        return code in PASSING and not (self._node is not None and code in NOT_THIS_NODE)

    # What one stream says -----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether an answer is due."""
        return bool(self._in_flight)

    async def next_request(self) -> log_pb2.GetStreamRequest:
        """The next message: what gathered, as much as fits an answer."""
        while True:
            await self._ready()
            message = self._take()
            if message:
                self._in_flight.append(message)
                return log_pb2.GetStreamRequest(
                    group=self._group,
                    indexes=[get.index for get in message],
                    consistency=WIRE_CONSISTENCY[self._consistency],
                )

    def settle(self, answer: log_pb2.GetStreamResponse) -> DLedgerError | None:
        """Completes the oldest message's gets. Returns a refusal after which another node has to be asked."""
        if not self._in_flight or len(self._in_flight[0]) != len(answer.results):
            return error(Code.INTERNAL_ERROR, f"{len(answer.results)} answers to another number of gets")
        message = self._in_flight.popleft()
        passing: DLedgerError | None = None
        again: list[_Get] = []
        largest_bytes = 0
        for get, result in zip(message, answer.results, strict=True):
            if result.HasField("entry"):
                found = result.entry
                value = found.value
                largest_bytes = max(largest_bytes, len(value))
                if not get.future.done():
                    get.future.set_result(Entry(found.index, found.term, found.timestamp_ms, value))
                continue
            refusal = _refusal(result.error, get.index, answer.commit_index)
            if self._passes(refusal.code):
                passing = refusal
                again.append(get)
            else:
                _fail(get, refusal)
        self._queued.extendleft(reversed(again))
        self._largest_bytes = max(largest_bytes + 64, self._largest_bytes * 7 // 8)
        if passing is None:
            self._backoff.reset()
            self._last_refusal = None
        self._wake()
        return passing


def _fail(get: _Get, refusal: DLedgerError) -> None:
    if not get.future.done():
        get.future.set_exception(refusal.copy())


def _refusal(wire: log_pb2.Error, index: int, commit_index: int) -> DLedgerError:
    code = code_named(wire.reason) or Code.INTERNAL_ERROR
    metadata = {"commit_index": str(commit_index), **wire.metadata}  # a server of an earlier version tells none
    message = wire.message or f"record {index} was refused: {wire.reason}"
    return CODES[code].exception(message, code=code, metadata=metadata)
