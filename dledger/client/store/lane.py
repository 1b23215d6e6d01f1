"""A session of the store, and one stream after the other on which its requests are sent until each has its outcome."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from dledger.client.store.refusals import unary
from dledger.client.store.stubs import StoreStubs
from dledger.common.backoff import Backoff
from dledger.common.errors import Code, DLedgerError, InternalError
from dledger.common.futures import release
from dledger.rpc.client.cancellation import task_cancelled
from dledger.rpc.client.failures import was_sent
from dledger.rpc.client.pipelined_stream import PipelinedStream
from dledger.rpc.client.retry import ASKS_ELSEWHERE, PASSING
from dledger.v1 import store_service_pb2 as pb

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from dledger.client.store.nodes import StoreNodes
    from dledger.client.store.submission import Submission
    from dledger.rpc.client.channel import StreamCall
    from dledger.rpc.client.channels import Endpoint

WINDOW = 64
"""The store ends a session with more requests than these behind the acknowledged one."""
OPEN_TIMEOUT_MS = 3_000
LEAVE_S = 0.3

logger = logging.getLogger(__name__)


class Lane:
    """Requests of the present session are numbered from 1, as they are written. Invariant: a request is written only
    while its number is at most ``WINDOW`` above what is acknowledged."""

    def __init__(self, nodes: StoreNodes, rng: random.Random, name: str, on_settled: Callable[[], None]) -> None:
        """``on_settled`` is told when a request has its outcome."""
        self._nodes = nodes
        self._backoff = Backoff(rng)
        self._on_settled = on_settled
        self._loop = asyncio.get_running_loop()
        self._session = 0
        """0: none is open."""
        self._numbers = 0
        """Of the present session, given out."""
        self._acknowledged = 0
        self._finished: set[int] = set()
        """Numbers above the acknowledged one that nobody asks for any more."""
        self._queued: deque[Submission] = deque()
        """Without a number."""
        self._again: deque[Submission] = deque()
        """Have a number, and are to be written on the present stream."""
        self._written: dict[tuple[int, int], Submission] = {}
        """To the present stream, and not answered."""
        self._waiter: asyncio.Future[None] | None = None
        self.last_refusal: DLedgerError | None = None
        """Why nobody can be asked now."""
        self._call: StreamCall | None = None
        self._leaving: DLedgerError | None = None
        """Why the present stream is left."""
        self._leave_timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._task = self._loop.create_task(self._run(), name=f"dledger-store {name}")
        self._task.add_done_callback(self._on_end)

    def __len__(self) -> int:
        """How many requests have no outcome."""
        return len(self._queued) + len(self._again) + len(self._written)

    @property
    def has_room(self) -> bool:
        return len(self) < WINDOW

    @property
    def is_running(self) -> bool:
        return not self._task.done()

    def submissions(self) -> list[Submission]:
        return [*self._queued, *self._again, *self._written.values()]

    def put(self, submission: Submission) -> None:
        self._queued.append(submission)
        release(self._waiter)

    def drop_settled(self) -> None:
        """Of those whose callers gave up: they wait for nothing any more."""
        self._queued = deque(each for each in self._queued if not each.is_settled)
        for each in [each for each in self._again if each.is_settled]:
            self._again.remove(each)
            self._finish(each)
        for each in [each for each in self._written.values() if each.is_settled]:
            del self._written[each.key]
            self._finish(each)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """A program may cancel all tasks of its loop, this one among them: waiting callers are told at once."""
        if task.cancelled() and not self._is_closing:
            self.end(task_cancelled())

    async def close(self, reason: DLedgerError) -> None:
        """Ends what is left."""
        self._is_closing = True
        self._task.cancel()
        await asyncio.wait({self._task})
        self.end(reason)

    def end(self, reason: DLedgerError) -> None:
        for each in self.submissions():
            each.end(reason)
        self._queued.clear()
        self._again.clear()
        self._written.clear()
        self._on_settled()

    # One stream after the other ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._has_work()
            try:
                await self._attempt()
            except Exception as bug:  # waiting callers are told, once; the next stream begins anew
                logger.exception("a stream of the store ended on a bug")
                self.end(InternalError(f"the client of the store met a bug: {bug!r}; please report it"))
                self._session = 0

    async def _has_work(self) -> None:
        while not self._queued and not self._again:
            await self._wait()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def _attempt(self) -> None:
        """One stream, from finding a node to its end, and what its end means."""
        address = ""
        try:
            endpoint = await self._nodes.find()
            address = endpoint.address
            await self._open_session(endpoint)
        except DLedgerError as refusal:
            end = refusal
        else:
            end = await self._hold(endpoint)
        self._ended(address, end)
        await asyncio.sleep(self._backoff.next_s())

    async def _hold(self, endpoint: Endpoint) -> DLedgerError:
        self._leaving, self._call = None, endpoint.stub(StoreStubs).store.Submit()
        stream: PipelinedStream[pb.SubmitRequest, pb.SubmitResponse] = PipelinedStream(
            self._call, endpoint.address, self, self._nodes
        )
        end = await stream.hold()
        if self._leave_timer is not None:
            self._leave_timer.cancel()
            self._leave_timer = None
        return self._leaving or end

    async def _open_session(self, endpoint: Endpoint) -> None:
        if self._session:
            return
        method = endpoint.stub(StoreStubs).store.OpenSession
        answer = await unary(endpoint, method, pb.OpenSessionRequest(), OPEN_TIMEOUT_MS)
        self._session = answer.session
        self._numbers = self._acknowledged = 0
        self._finished.clear()

    def _ended(self, address: str, end: DLedgerError) -> None:
        """A stream has ended, or did not come about: what was written to it is written to the next one."""
        self.last_refusal = end
        if end.code in ASKS_ELSEWHERE:
            self._nodes.lost(address, end)
        sent = was_sent(end)
        for each in self._written.values():
            each.lost(end, was_sent=sent)
        again = sorted([*self._again, *self._written.values()], key=lambda each: each.key)
        self._again, self._written = deque(again), {}
        if end.code not in PASSING and end.code is not Code.SESSION_EXPIRED:
            self.end(end)

    # What one stream says ----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether an answer is due."""
        return bool(self._written)

    async def next_request(self) -> pb.SubmitRequest:
        """The next one, when there is one and the session has room for it."""
        while True:
            submission = self._take() if self._leaving is None else None
            if submission is not None:
                self._written[submission.key] = submission
                return submission.wire(self._acknowledged if submission.session == self._session else 0)
            await self._wait()

    def _take(self) -> Submission | None:
        if self._again:
            return self._again.popleft()
        while self._queued and self._numbers - self._acknowledged < WINDOW:
            submission = self._queued.popleft()
            if submission.is_settled:
                continue
            self._numbers += 1
            submission.assign(self._session, self._numbers)
            return submission
        return None

    def settle(self, answer: pb.SubmitResponse) -> DLedgerError | None:
        """Takes an answer. Returns a refusal after which the stream is left, once all it was asked for is answered."""
        submission = self._written.pop((answer.session, answer.request), None)
        if submission is not None:  # otherwise its caller gave up
            refusal = submission.take(answer)
            if refusal is None:
                self._backoff.reset()
                self.last_refusal = None
            elif refusal.code in PASSING or refusal.code is Code.SESSION_EXPIRED:
                self._leave(refusal)
            self._place(submission, refusal)
        return self._leaving if not self._written else None

    def _place(self, submission: Submission, refusal: DLedgerError | None) -> None:
        if refusal is not None and refusal.code is Code.SESSION_EXPIRED:
            if submission.session == self._session:
                self._session = 0
            if not submission.is_settled:  # it was surely not carried out: it goes into the next session
                submission.assign(0, 0)
                self._queued.appendleft(submission)
        elif not submission.is_settled:
            self._again.append(submission)
        if submission.is_settled:
            self._finish(submission)

    def _leave(self, refusal: DLedgerError) -> None:
        """Nothing more is written to this stream. What was written may still be answered, for a moment: a node that
        refuses one request soon says of the others that it did nothing."""
        if self._leaving is None:
            self._leaving = refusal
            assert self._call is not None
            self._leave_timer = self._loop.call_later(LEAVE_S, self._call.cancel)

    def _finish(self, submission: Submission) -> None:
        """It needs no answer any more."""
        if submission.session == self._session:
            self._finished.add(submission.number)
            while self._acknowledged + 1 in self._finished:
                self._acknowledged += 1
                self._finished.discard(self._acknowledged)
        release(self._waiter)
        self._on_settled()
