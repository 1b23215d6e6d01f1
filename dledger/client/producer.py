"""The idempotent producer: keeps one AppendStream to the leader, and resends until everything has its outcome.

Every record has a sequence number under a producer id of the log's. So a resend after a broken stream or a failover is
recognised and never appended twice. For the caller a failover is a delay.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from dledger.client.append_queue import AppendQueue
from dledger.client.log_client_wire import encode_append
from dledger.client.stubs import LogStubs
from dledger.common.backoff import Backoff
from dledger.common.errors import Code, DLedgerError, InternalError, WrongExpectedIndex
from dledger.rpc.client.cancellation import client_closed, task_cancelled
from dledger.rpc.client.failures import unary
from dledger.rpc.client.pipelined_stream import PipelinedStream
from dledger.rpc.client.retry import ASKS_ELSEWHERE, PASSING
from dledger.rpc.client.verdict import FOR_ALL, Verdict, judge, judge_expectation, leaves_doubt
from dledger.v1 import log_pb2

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from dledger.client.leader_locator import LeaderLocator
    from dledger.client.pending import PendingBatch
    from dledger.client.waits import Waits
    from dledger.rpc.client.channels import Endpoint

INIT_TIMEOUT_MS = 1_500

logger = logging.getLogger(__name__)


class Producer:
    """Sends what ``queue`` holds."""

    def __init__(
        self, queue: AppendQueue, leaders: LeaderLocator, group: str, rng: random.Random, *, waits: Waits
    ) -> None:
        self._waits = waits
        self._queue = queue
        self._leaders = leaders
        self._group = group
        self._backoff = Backoff(rng)
        self._identity: log_pb2.InitProducerResponse | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self.on_cancelled: Callable[[], None] = lambda: None
        """Told when somebody else cancelled its task: then it may be started again."""

    def start(self) -> None:
        """Starts sending, in a task of its own, unless it runs."""
        if self._task is not None and not self._task.done():
            return
        self._task = asyncio.create_task(self._run(), name="dledger-producer")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A program may cancel all tasks of its loop, this one among them: waiting callers are told at once."""
        if task.cancelled() and not self._is_closing:
            self._identity = None
            self._queue.close(task_cancelled())
            self.on_cancelled()

    async def close(self, timeout_s: float) -> None:
        """Waits for the outcomes of everything pending, at most ``timeout_s``; then ends what is left."""
        self._is_closing = True
        try:
            if self._task is not None and not self._task.done():
                await self._queue.drain(timeout_s)
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})
            self._queue.close(client_closed())

    async def _run(self) -> None:
        while True:
            if not self._queue.busy:
                await self._queue.ready()
            try:
                await self._attempt()
            except Exception as bug:  # waiting callers are told, once; a new producer begins anew
                logger.exception("a stream of appends ended on a bug")
                self._queue.close(InternalError(f"the client's producer met a bug: {bug!r}; please report it"))
                self._identity = None

    async def _attempt(self) -> None:
        """One stream, from finding the leader to its end, and what its end means."""
        try:
            endpoint = await self._leaders.find_for_appends()
            await self._identify(endpoint)
        except DLedgerError as refusal:
            self._queue.last_refusal = refusal
            if refusal.code in FOR_ALL:
                self._queue.refuse_queued(refusal)
        else:
            assert self._identity is not None
            sender = _Sender(self._queue, self._group, self._identity, self._backoff)
            stream = PipelinedStream(endpoint.stub(LogStubs).append_stream(), endpoint.address, sender, self._leaders)
            end = await stream.hold()
            self._queue.last_refusal = end
            if end.code in ASKS_ELSEWHERE or end.code is Code.OUT_OF_ORDER:
                # A gap where we left none: this node does not know the newest of the log.
                self._leaders.lost(endpoint.address, end)
            if self._settle(end):
                return
        self._tell_of_wait()
        await asyncio.sleep(self._backoff.next_s())

    def _tell_of_wait(self) -> None:
        refusal = self._queue.last_refusal
        if self._queue.busy and refusal is not None and refusal.code in PASSING:
            self._waits.refused(refusal)

    async def _identify(self, endpoint: Endpoint) -> None:
        if self._identity is not None:
            return
        assert not self._queue.in_flight, "sequences belong to a producer"
        try:
            request = log_pb2.InitProducerRequest(group=self._group)
            self._identity = await unary(endpoint, endpoint.stub(LogStubs).log.InitProducer, request, INIT_TIMEOUT_MS)
        except DLedgerError as refusal:
            if refusal.code in ASKS_ELSEWHERE:
                self._leaders.lost(endpoint.address, refusal)
            raise

    def _settle(self, refusal: DLedgerError) -> bool:
        """Applies the table of ``verdict`` to what was in flight when a stream ended. Returns whether the end was an
        answer, after which there is nothing to wait for."""
        queue = self._queue
        if not queue.in_flight:
            return False
        if leaves_doubt(refusal):
            for batch in queue.in_flight:
                batch.doubtful = True
        verdict = self._verdict(refusal, queue.in_flight[0])
        logger.debug("a stream of appends ended: %s (%s)", refusal, verdict.name)
        if verdict is Verdict.RESEND:
            return False
        if verdict is Verdict.REFUSE_EXPECTATION:
            queue.refuse_expectation(refusal)
            self._backoff.reset()
            return True
        if verdict is Verdict.ABANDON:
            queue.abandon(refusal)
        else:
            if verdict is Verdict.REFUSE_HEAD:
                queue.refuse_head(refusal)
            queue.renew()
        self._identity = None
        return False

    @staticmethod
    def _verdict(refusal: DLedgerError, oldest: PendingBatch) -> Verdict:
        if isinstance(refusal, WrongExpectedIndex) and oldest.expect_index is not None:
            return judge_expectation(refusal, oldest.expect_index, doubtful=oldest.doubtful)
        return judge(refusal.code, doubtful=oldest.doubtful)


class _Sender:
    """The messages of one stream: everything in flight once more, then new batches."""

    def __init__(
        self, queue: AppendQueue, group: str, identity: log_pb2.InitProducerResponse, backoff: Backoff
    ) -> None:
        self._queue = queue
        self._group = group
        self._identity = identity
        self._backoff = backoff
        self._again = deque(queue.in_flight)

    @property
    def waiting(self) -> bool:
        return bool(self._queue.in_flight)

    async def next_request(self) -> bytes:
        if self._again:
            return self._encode(self._again.popleft())
        while (batch := self._queue.take()) is None:
            await self._queue.ready()
        return self._encode(batch)

    def settle(self, answer: log_pb2.AppendStreamResponse) -> DLedgerError | None:
        self._queue.acknowledge(answer.base_index, answer.count, answer.term, answer.timestamp_ms)
        self._backoff.reset()
        return None

    def _encode(self, batch: PendingBatch) -> bytes:
        head = log_pb2.AppendStreamRequest(
            group=self._group,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=batch.base_sequence,
            count=batch.count,
            body_crc=batch.body_crc,
            expect_index=batch.expect_index,
        )
        return encode_append(head, batch.body)
