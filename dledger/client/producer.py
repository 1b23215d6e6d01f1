"""The idempotent producer: keeps one AppendStream to the leader, and resends until everything has its outcome.

Every record has a sequence number under a producer id of the log's, so a resend after a broken stream or a failover is
recognised and never appended twice. For the caller a failover is a delay.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from grpc import aio

from dledger.client.append_queue import AppendQueue
from dledger.client.retry import ASKS_ELSEWHERE, Backoff
from dledger.client.rpc import from_rpc, unary
from dledger.client.verdict import FOR_ALL, Verdict, judge, leaves_doubt
from dledger.client.wire import encode_append
from dledger.errors import Code, DLedgerError, InternalError, Unavailable, error
from dledger.v1 import log_pb2

if TYPE_CHECKING:
    import random

    from dledger.client.channels import Endpoint
    from dledger.client.leader import Leaders
    from dledger.client.pending import PendingBatch

    AppendCall = aio.StreamStreamCall[bytes, log_pb2.AppendStreamResponse]

INIT_TIMEOUT_MS = 1_500
STALL_CHECK_S = 0.6
"""A stream without an answer for so long makes us ask the others whether there is another leader."""
STALL_CHECKS = 12
"""After so many in a row the stream is given up and everything resent, whoever leads."""

logger = logging.getLogger(__name__)


class Producer:
    """Sends what ``queue`` holds."""

    def __init__(self, queue: AppendQueue, leaders: Leaders, group: str, rng: random.Random) -> None:
        self._queue = queue
        self._leaders = leaders
        self._group = group
        self._backoff = Backoff(rng)
        self._identity: log_pb2.InitProducerResponse | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts sending, in a task of its own."""
        self._task = asyncio.create_task(self._run(), name="dledger-producer")

    async def close(self, timeout_s: float) -> None:
        """Waits for the outcomes of everything pending, at most ``timeout_s``; then ends what is left."""
        if self._task is not None and not self._task.done():
            await self._queue.drain(timeout_s)
            self._task.cancel()
            await asyncio.wait({self._task})
        self._queue.close(error(Code.SHUTTING_DOWN, "the client was closed"))

    async def _run(self) -> None:
        try:
            while True:
                if not self._queue.busy:
                    await self._queue.ready()
                await self._attempt()
        except Exception as bug:
            logger.exception("the producer stopped on a bug")
            self._queue.close(InternalError(f"the client's producer stopped on a bug: {bug!r}"))
            raise

    async def _attempt(self) -> None:
        """One stream, from finding the leader to its end, and what its end means."""
        try:
            endpoint = await self._leaders.find()
            await self._identify(endpoint)
        except DLedgerError as refusal:
            self._queue.last_refusal = refusal
            if refusal.code in FOR_ALL:
                self._queue.refuse_queued(refusal)
        else:
            end = await self._stream(endpoint)
            self._queue.last_refusal = end
            if end.code in ASKS_ELSEWHERE or end.code is Code.OUT_OF_ORDER:
                # A gap where we left none: who says so does not know the newest of the log.
                self._leaders.lost(endpoint.address, end)
            self._settle(end)
        await asyncio.sleep(self._backoff.next_s())

    async def _identify(self, endpoint: Endpoint) -> None:
        if self._identity is not None:
            return
        assert not self._queue.in_flight, "sequences belong to a producer"
        try:
            request = log_pb2.InitProducerRequest(group=self._group)
            self._identity = await unary(endpoint, endpoint.log.InitProducer, request, INIT_TIMEOUT_MS)
        except DLedgerError as refusal:
            if refusal.code in ASKS_ELSEWHERE:
                self._leaders.lost(endpoint.address, refusal)
            raise

    def _settle(self, refusal: DLedgerError) -> None:
        """Applies the table of ``verdict`` to what was in flight when a stream ended."""
        queue = self._queue
        if not queue.in_flight:
            return
        if leaves_doubt(refusal.code):
            for batch in queue.in_flight:
                batch.doubtful = True
        verdict = judge(refusal.code, doubtful=queue.in_flight[0].doubtful)
        logger.debug("a stream of appends ended: %s (%s)", refusal, verdict.name)
        if verdict is Verdict.RESEND:
            return
        if verdict is Verdict.ABANDON:
            queue.abandon(refusal)
        else:
            if verdict is Verdict.REFUSE_HEAD:
                queue.refuse_head(refusal)
            queue.renew()
        self._identity = None

    # One stream -------------------------------------------------------------------------------------------------

    async def _stream(self, endpoint: Endpoint) -> DLedgerError:
        """Sends and hears answers until the stream ends, and returns why it did."""
        call: AppendCall = endpoint.append_stream()
        helpers = [
            asyncio.create_task(self._write(call), name="dledger-producer-writer"),
            asyncio.create_task(self._watch(call, endpoint.address), name="dledger-producer-watch"),
        ]
        for task in helpers:
            task.add_done_callback(lambda _: call.cancel())
        try:
            return await self._hear(call, endpoint.address)
        finally:
            for task in helpers:
                task.cancel()
            await asyncio.wait(helpers)
            call.cancel()
            for task in helpers:
                if not task.cancelled() and (bug := task.exception()) is not None:
                    raise bug

    async def _hear(self, call: AppendCall, address: str) -> DLedgerError:
        acknowledge = self._queue.acknowledge
        try:
            while True:
                answer = await call.read()
                if not isinstance(answer, log_pb2.AppendStreamResponse):
                    return Unavailable(f"{address} ended the stream")
                acknowledge(answer.base_index, answer.count, answer.term, answer.timestamp_ms)
                self._backoff.reset()
        except aio.AioRpcError as failure:
            return from_rpc(failure, address)
        except InternalError as misfit:
            return misfit
        except asyncio.CancelledError:
            # The stream was given up by one of its helpers; if it is this task that is cancelled, go with it.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return Unavailable(f"{address} stopped answering")

    async def _write(self, call: AppendCall) -> None:
        """Everything in flight once more, then what comes."""
        queue = self._queue
        assert self._identity is not None
        producer_id, producer_epoch = self._identity.producer_id, self._identity.producer_epoch
        try:
            for batch in tuple(queue.in_flight):
                await call.write(self._request(batch, producer_id, producer_epoch))
            while True:
                next_batch = queue.take()
                if next_batch is None:
                    await queue.ready()
                else:
                    await call.write(self._request(next_batch, producer_id, producer_epoch))
        except (aio.AioRpcError, asyncio.InvalidStateError):
            return  # The stream has ended; the side that hears the answers knows why.

    def _request(self, batch: PendingBatch, producer_id: int, producer_epoch: int) -> bytes:
        head = log_pb2.AppendStreamRequest(
            group=self._group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=batch.base_sequence,
            count=batch.count,
            body_crc=batch.body_crc,
        )
        return encode_append(head, batch.body)

    async def _watch(self, call: AppendCall, address: str) -> None:
        """Gives the stream up when nothing is answered while another node leads, or for too long."""
        settled, silent = self._queue.settled_batches, 0
        while True:
            waiting = bool(self._queue.in_flight)
            await asyncio.sleep(STALL_CHECK_S)
            if not waiting or not self._queue.in_flight or settled != self._queue.settled_batches:
                settled, silent = self._queue.settled_batches, 0
                continue
            silent += 1
            if silent >= STALL_CHECKS or await self._leaders.moved_on(address):
                call.cancel()
                return
