"""A producer under a name: the records that one process appended, another one finds appended.

A name stands for the same producer for as long as the log knows it (seven days without an append, by the log's time). A
caller may open it with the same **epoch** as one before, and make the same calls in the same order. Then it appends
only the records that the one before did not get to. A higher epoch begins anew, and ends every lower one. So a job that
may be run again, by itself or by a scheduler, takes its own number for the epoch. Its records are appended exactly
once, however often it died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from dledger.client.arguments import check_amount
from dledger.client.bounds import ask_bounds
from dledger.client.log_client_wire import encode_append
from dledger.client.pending import build_bodies, check_body_size
from dledger.client.results import FORGOTTEN_INDEX, Acks, AckSpan
from dledger.client.stubs import LogStubs
from dledger.common.batch import crc32c
from dledger.common.errors import CODES, Code, DeadlineExceeded, DLedgerError, InternalError, OutcomeUnknown, error
from dledger.common.futures import retrieve
from dledger.common.types import Consistency
from dledger.rpc.client.call_loop import CallLoop
from dledger.rpc.client.cancellation import client_closed
from dledger.rpc.client.failures import unary
from dledger.rpc.client.pipelined_stream import PipelinedStream
from dledger.rpc.client.retry import ASKS_ELSEWHERE, PASSING
from dledger.rpc.client.verdict import SAYS_ITSELF, leaves_doubt
from dledger.v1 import log_pb2

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from types import TracebackType

    from dledger.client.client_options import ClientOptions
    from dledger.client.leader_locator import LeaderLocator
    from dledger.client.waits import Waits
    from dledger.common.batch import Buffer
    from dledger.common.types import Ack
    from dledger.rpc.client.channels import Endpoint

INIT_TIMEOUT_MS = 1_500
CONFIRM_TIMEOUT_MS = 1_500
logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Batch:
    """One batch, from its call to its outcome. Its place in the sequence never changes."""

    base_sequence: int
    body: Buffer
    body_crc: int
    count: int
    settled: asyncio.Future[AckSpan]
    sent: bool = False
    """On the stream there is."""
    doubtful: bool = False
    """Whether it was sent, and nothing said what became of it."""


class NamedProducer:
    """Used as ``async with log.producer("name", epoch=7) as producer:``; leaving waits for everything appended.

    All callers that open the same name and epoch must make the same calls in the same order, with the same records. A
    difference under a known sequence is SEQUENCE_CONFLICT. After a failure nothing more is appended; open it again,
    with the same epoch, to go on. When the client is closed it waits as for other appends. A record without an outcome
    then is OutcomeUnknown if it was sent, SHUTTING_DOWN if not. Every later append is SHUTTING_DOWN too.
    """

    def __init__(
        self,
        name: str,
        epoch: int,
        sequence: int,
        *,
        leaders: LeaderLocator,
        options: ClientOptions,
        rng: random.Random,
        waits: Waits,
    ) -> None:
        """``sequence``: so many records were appended in this epoch before; 0 to begin at its beginning.

        If there were fewer, the first append fails with OUT_OF_ORDER; its metadata's ``expected_sequence`` is how many.
        """
        self.name = name
        self.epoch = epoch
        self._leaders = leaders
        self._group = options.group
        self._limits = options.limits
        self._window = options.max_batches_in_flight
        self._timeout_ms = options.timeout_ms
        self._rng = rng
        self._waits = waits
        self._producer_id = 0
        self._first_sequence = sequence
        self._next_sequence = sequence
        self._waiting: deque[_Batch] = deque()
        """The batches not settled yet, the oldest first."""
        self._changed = asyncio.Event()
        """Something was appended, or settled."""
        self._failure: DLedgerError | None = None
        self._doubt: OutcomeUnknown | None = None
        """Of something that had been sent when it failed."""
        self._closed: DLedgerError | None = None
        """Why nothing more is taken: it was left, or the client is closed. No failure of what was appended before."""
        self._confirmed = ""
        """The leader confirmed since this was opened: it knows everything that was appended before."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Finds the producer, or has it made. Raises PRODUCER_FENCED when a higher epoch has begun."""
        self._loop = asyncio.get_running_loop()
        self._calls = CallLoop(self._timeout_ms, self._rng, on_wait=self._tell_of_wait)
        """Its time begins anew with every progress, and ends the producer when it is over."""
        while not self._producer_id:
            try:
                await self._calls.bound(self._register())
            except DLedgerError as refusal:
                self._may_go_on(refusal)
                await self._calls.pause()
        if self._closed is not None:
            raise self._closed.copy()
        self._task = asyncio.create_task(self._run(), name=f"dledger-producer {self.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if value is None:
                await self.flush()
        finally:
            await self._stop(error(Code.SHUTTING_DOWN, f"producer {self.name!r} was closed"))

    async def close(self, timeout_s: float) -> None:
        """For a client that is closed: takes nothing more, waits for the outcomes of appends, at most ``timeout_s``,
        and ends the rest."""
        self._refuse_more(client_closed())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._settled()
        finally:
            await self._stop(client_closed())

    def give_up(self) -> None:
        """For a client that ends at once: all waiting records have their outcome now."""
        self._refuse_more(client_closed())
        self._end()

    async def _stop(self, reason: DLedgerError) -> None:
        self._refuse_more(reason)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._end()

    def _refuse_more(self, reason: DLedgerError) -> None:
        if self._closed is None:
            self._closed = reason
        self._changed.set()

    async def append(self, record: Buffer) -> Ack:
        """Appends one record, and says where it is once a majority holds it durably: raises as ``append_many``."""
        [ack] = await self.append_many([record])
        return ack

    async def append_many(self, records: Sequence[Buffer]) -> Acks:
        """Appends the records in order, as one batch or, beyond ``max_batch_bytes``, as several; returns when a
        majority holds them durably. An index of ``FORGOTTEN_INDEX`` says that the record was in the log already, too
        long ago for the log to know its index. Raises the error of which the producer failed."""
        return Acks([await span for span in await self.enqueue_many(records)])

    async def enqueue_many(self, records: Sequence[Buffer]) -> list[asyncio.Future[AckSpan]]:
        """As ``append_many``, for many calls at a time: waits for room in the window, not for the outcome. The futures,
        one a batch, tell the outcome, and so does ``flush``."""
        bodies = build_bodies(records, self._limits.max_record_bytes, self._limits.max_batch_bytes)
        return [await self.enqueue_body(body, count) for body, count in bodies]

    async def enqueue_body(self, body: Buffer, count: int) -> asyncio.Future[AckSpan]:
        """As ``enqueue_many``, with a ready-made body (dledger.common.batch draws it) of ``count`` records.

        Raises BATCH_TOO_LARGE, and nothing is sent, for one that no server can be told to take.
        """
        if not isinstance(body, bytes | bytearray | memoryview):
            raise error(Code.UNEXPECTED_ARGUMENT, f"a body is bytes, not {type(body).__name__}: build it of records")
        check_body_size(body)
        check_amount("count", count, least=1)
        while len(self._waiting) >= self._window and self._failure is None and self._closed is None:
            self._changed.clear()
            await self._changed.wait()
        if refusal := self._failure or self._closed:
            raise refusal.copy()
        self._check_entered()
        settled: asyncio.Future[AckSpan] = self._loop.create_future()
        settled.add_done_callback(retrieve)  # ``flush`` tells a caller that does not look at it
        if not self._waiting:
            self._calls.renew()
        self._waiting.append(_Batch(self._next_sequence, body, crc32c(body), count, settled))
        self._next_sequence += count
        self._changed.set()
        return settled

    async def flush(self) -> None:
        """Returns when everything appended so far is in the log. Raises the error of which the producer failed;
        OutcomeUnknown if something had been sent by then."""
        await self._settled()
        self.check()

    def check(self) -> None:
        """Raises as ``flush`` would, for everything that has its outcome."""
        if refusal := self._doubt or self._failure:
            raise refusal.copy()
        self._check_entered()

    @property
    def has_ended(self) -> bool:
        """Whether nothing is taken any more, and all that was has its outcome."""
        return self._closed is not None and not self._waiting

    async def _settled(self) -> None:
        while self._waiting and self._failure is None:
            self._changed.clear()
            await self._changed.wait()

    def _check_entered(self) -> None:
        if self._task is None:
            raise error(Code.SHUTTING_DOWN, "the producer is not open: use it inside `async with log.producer(…)`")

    # Sending ----------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        endpoint = await self._leaders.find_for_appends()
        try:
            request = log_pb2.InitProducerRequest(group=self._group, name=self.name)
            answer = await unary(endpoint, endpoint.stub(LogStubs).log.InitProducer, request, INIT_TIMEOUT_MS)
        except DLedgerError as refusal:
            if refusal.code in ASKS_ELSEWHERE:
                self._leaders.lost(endpoint.address, refusal)
            raise
        if answer.name != self.name:
            text = f"{endpoint.address} runs a version that does not know producers by name: upgrade every node first"
            raise error(Code.UNSUPPORTED, text)
        if answer.producer_epoch > self.epoch:
            text = f"producer {self.name!r} has begun epoch {answer.producer_epoch}: epoch {self.epoch} is over"
            raise error(Code.PRODUCER_FENCED, text, epoch=answer.producer_epoch)
        self._producer_id = answer.producer_id

    async def _run(self) -> None:
        try:
            while self._failure is None:
                while not self._waiting:
                    self._changed.clear()
                    await self._changed.wait()
                await self._attempt()
        except asyncio.CancelledError:
            self._end()  # by the caller that closed it, or by the client
            raise
        except Exception as bug:
            logger.exception("a named producer ended on a bug")
            self._note_what_was_sent(in_doubt=True)
            self._fail(InternalError(f"producer {self.name!r} met a bug: {bug!r}; please report it"))

    async def _attempt(self) -> None:
        """One stream, from finding the leader to its end, and what its end means."""
        try:
            endpoint = await self._leaders.find_for_appends()
        except DLedgerError as refusal:
            end = refusal
        else:
            stream = PipelinedStream(
                endpoint.stub(LogStubs).append_stream(), endpoint.address, _Sender(self), self._leaders
            )
            end = await stream.hold()
            if end.code is Code.OUT_OF_ORDER and await self._is_gap(endpoint):
                self._fail(self._gap(end))
                return
            if end.code in ASKS_ELSEWHERE or end.code is Code.OUT_OF_ORDER:
                self._leaders.lost(endpoint.address, end)
            self._note_what_was_sent(in_doubt=leaves_doubt(end))
        if end.code is Code.REPEATED_REQUEST and self._waiting:
            self.settle(FORGOTTEN_INDEX, 0, 0)
            return
        try:
            # A gap where we left none: this node does not know the newest of the log, and learns of it.
            self._may_go_on(end, passes=end.code is Code.OUT_OF_ORDER)
        except DLedgerError as failure:
            self._fail(failure)
            return
        await self._calls.pause()

    async def _is_gap(self, endpoint: Endpoint) -> bool:
        """Whether records before the first of ours are missing indeed: a leader says so that was confirmed before.

        One that was not may have been deposed, and not know the newest of the log.
        """
        is_first = bool(self._waiting) and self._waiting[0].base_sequence == self._first_sequence > 0
        if not is_first or self._confirmed == endpoint.address:
            return is_first
        try:
            await ask_bounds(endpoint, self._group, Consistency.LINEARIZABLE, CONFIRM_TIMEOUT_MS)
        except DLedgerError as refusal:
            logger.debug("%s is not confirmed as the leader: %s", endpoint.address, refusal)
        else:
            self._confirmed = endpoint.address
        return False

    def _gap(self, refusal: DLedgerError) -> DLedgerError:
        expected = refusal.metadata.get("expected_sequence", "a lower one")
        text = (
            f"producer {self.name!r} was opened with sequence={self._first_sequence}, but the log lacks records of "
            f"epoch {self.epoch} before that: {expected} is expected next; append those first, or open it there"
        )
        return CODES[refusal.code].exception(text, code=refusal.code, metadata=refusal.metadata)

    def _may_go_on(self, refusal: DLedgerError, *, passes: bool = False) -> None:
        """Raises what will not pass, or has lasted for too long."""
        self._leaders.check()
        doubtful = bool(self._waiting) and self._waiting[0].doubtful
        if refusal.code not in PASSING and not passes:
            raise refusal
        self._calls.note(refusal)
        if self._task is not None and not self._waiting:
            self._calls.renew()  # nobody waits for anything
        if not self._calls.left_ms:
            text = f"producer {self.name!r} got nowhere for {self._calls.waited_s:.1f} s: {self._calls.reason}"
            raise OutcomeUnknown(text) if doubtful else DeadlineExceeded(text)

    def _tell_of_wait(self, refusal: DLedgerError) -> None:
        if self._waiting or self._task is None:
            self._waits.refused(refusal)

    def settle(self, base_index: int, term: int, timestamp_ms: int) -> None:
        """The oldest batch is in the log."""
        batch = self._waiting.popleft()
        if not batch.settled.done():
            batch.settled.set_result(AckSpan(base_index, batch.count, term, timestamp_ms))
        self._calls.progressed()
        self._changed.set()

    def _end(self) -> None:
        """Fails what waits, if anything does. A task that is cancelled by nobody here ends with its loop."""
        if self._waiting:
            self._note_what_was_sent(in_doubt=True)
            self._fail(self._closed or client_closed())

    def _note_what_was_sent(self, *, in_doubt: bool) -> None:
        """A stream has ended: without a word on its batches' outcomes, or with a refusal of all of them."""
        for batch in self._waiting:
            batch.doubtful |= batch.sent and in_doubt
            batch.sent = False

    def _fail(self, failure: DLedgerError) -> None:
        """Ends all waiting batches: with ``failure``, if they surely were not appended, else with OutcomeUnknown."""
        if self._failure is None:
            self._failure = failure
        is_said_of_it = failure.code in SAYS_ITSELF
        while self._waiting:
            batch = self._waiting.popleft()
            outcome = failure.copy()
            if batch.doubtful and not is_said_of_it:
                outcome = self._doubt = OutcomeUnknown(
                    f"{failure}; it was sent: it may be in the log, or get there yet"
                )
            is_said_of_it = False
            if not batch.settled.done():
                batch.settled.set_exception(outcome)
        self._changed.set()


class _Sender:
    """The messages of one stream: all waiting batches once more, then new ones."""

    def __init__(self, producer: NamedProducer) -> None:
        self._producer = producer
        self._sent = 0
        """How many of those that wait were sent on this stream."""

    @property
    def waiting(self) -> bool:
        return bool(self._producer._waiting)

    async def next_request(self) -> bytes:
        producer = self._producer
        while self._sent >= len(producer._waiting):
            producer._changed.clear()
            await producer._changed.wait()
        batch = producer._waiting[self._sent]
        batch.sent = True
        self._sent += 1
        head = log_pb2.AppendStreamRequest(
            group=producer._group,
            producer_id=producer._producer_id,
            producer_epoch=producer.epoch,
            base_sequence=batch.base_sequence,
            count=batch.count,
            body_crc=batch.body_crc,
        )
        return encode_append(head, batch.body)

    def settle(self, answer: log_pb2.AppendStreamResponse) -> DLedgerError | None:
        waiting = self._producer._waiting
        if not waiting or waiting[0].count != answer.count:
            sent = waiting[0].count if waiting else 0
            raise error(Code.INTERNAL_ERROR, f"the leader acknowledged {answer.count} records where {sent} were sent")
        self._sent -= 1
        self._producer.settle(answer.base_index, answer.term, answer.timestamp_ms)
        return None
