"""The appends of one producer, from the call to the ack: gathered into batches, sequenced, settled in order. No IO.

Nothing lingers. Calls travel together only if they had to wait. They wait for room in the window or, with several
batches under way, for enough calls to be worth another.

Invariants: everything in flight is sequenced without a gap, oldest first, in the order of the calls. Queued batches are
newer than all of it and have no sequence yet. A batch in flight leaves from the front only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

from dledger.client.arguments import check_timeout_ms
from dledger.client.pending import (
    RECORD_OVERHEAD_BYTES,
    PendingBatch,
    body_bytes,
    check_record_size,
    split_records,
)
from dledger.client.split_call import joined
from dledger.client.waits import TELL_INTERVAL_S
from dledger.common.batch import as_record
from dledger.common.errors import Code, DeadlineExceeded, DLedgerError, OutcomeUnknown, error
from dledger.common.futures import release
from dledger.rpc.client.verdict import SAYS_ITSELF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.client.results import Acks, AckSpan
    from dledger.client.waits import Waits
    from dledger.common.batch import Buffer
    from dledger.common.config import Limits
    from dledger.common.types import Ack

TICK_S = 0.02
"""Calls within one tick share a deadline; one that runs out is noticed within another tick. Never early."""
BODY_OVERHEAD_BYTES = 8
"""The offset of one more record, and the one behind the last."""
GATHER_BYTES = 1 << 20
"""A gathering batch is sealed at about this size."""
SHARED_BYTES = 400_000
"""Whole calls that wait share a batch up to this size. Nodes spend half as much time on three batches of 132 KB if
these travel as one. With larger ones no more is won, and too few are under way at a time."""
EAGER_BATCHES = 4
"""With so many under way, whole calls wait until they fill a batch, or one is answered."""


class AppendQueue:
    """Gathers, orders, bounds and settles. ``window`` batches may be in flight."""

    def __init__(self, limits: Limits, *, window: int, max_pending_bytes: int, timeout_ms: float, waits: Waits) -> None:
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future
        self._limits = limits
        self._max_record_bytes = limits.max_record_bytes
        self._gather_bytes = min(GATHER_BYTES, limits.max_batch_bytes) - BODY_OVERHEAD_BYTES
        self._shared_bytes = min(SHARED_BYTES, limits.max_batch_bytes)
        self._window = window
        self._max_pending_bytes = max_pending_bytes
        self._timeout_ms = timeout_ms
        self._pending_bytes = 0
        self._queued: deque[PendingBatch] = deque()
        self._open: PendingBatch | None = None
        self._next_sequence = 0
        self._waiter: asyncio.Future[None] | None = None
        self._starving = False
        self._timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self._moved_at = 0.0
        """The time of the last acknowledgement, or since then of the first call after an idle time."""
        self.in_flight: deque[PendingBatch] = deque()
        self.settled_batches = 0
        self.last_refusal: DLedgerError | None = None
        """Why the last attempt did not work; told to callers that run out of time meanwhile."""

    # The caller's side ------------------------------------------------------------------------------------------

    def append(
        self, record: bytes, timeout_ms: float | None = None, *, expect_index: int | None = None
    ) -> asyncio.Future[Ack]:
        """Queues one record, alone if it expects an index. Raises UNEXPECTED_ARGUMENT, RECORD_TOO_LARGE or PendingFull,
        at once."""
        if record.__class__ is not bytes:
            record = as_record(record)
        size_bytes = len(record)
        if size_bytes > self._max_record_bytes:
            check_record_size(size_bytes, self._max_record_bytes)
        if self._pending_bytes + size_bytes > self._max_pending_bytes:
            raise self._full()
        if timeout_ms is None:
            timeout_ms = self._timeout_ms
        elif timeout_ms != self._timeout_ms:
            check_timeout_ms(timeout_ms)
        batch = self._open if expect_index is None else None
        if batch is None or batch.timeout_ms != timeout_ms or batch.body_bytes + size_bytes > self._gather_bytes:
            batch = self._open = self._new_batch(timeout_ms)
        future: asyncio.Future[Ack] = self._create_future()
        batch.records.append(record)
        batch.futures.append(future)
        batch.body_bytes += size_bytes + 4
        self._pending_bytes += size_bytes + RECORD_OVERHEAD_BYTES
        batch.charged_bytes += size_bytes + RECORD_OVERHEAD_BYTES
        if expect_index is not None:
            batch.expect_index, self._open = expect_index, None
        if self._starving:
            self._wake()
        return future

    def append_many(
        self, records: Sequence[Buffer], timeout_ms: float | None = None, *, expect_index: int | None = None
    ) -> asyncio.Future[Acks]:
        """Queues the records to be appended at once (in parts beyond the limit of one batch). Raises as ``append``, and
        BATCH_TOO_LARGE for parts that expect an index: they would not be atomic."""
        if timeout_ms is None:
            timeout_ms = self._timeout_ms
        check_timeout_ms(timeout_ms)
        parts = split_records(records, self._limits.max_record_bytes, self._limits.max_batch_bytes)
        if expect_index is not None and len(parts) > 1:
            most = self._limits.max_batch_bytes
            text = f"a conditional append is one batch, of {most} bytes at most: append less at once"
            raise error(Code.BATCH_TOO_LARGE, text)
        sizes_bytes = [body_bytes(part) for part in parts]
        size_bytes = sum(sizes_bytes)
        if size_bytes > self._max_pending_bytes:
            raise error(
                Code.BATCH_TOO_LARGE,
                f"one call's records take {size_bytes} bytes, and max_pending_bytes is {self._max_pending_bytes}: it "
                "can never pass; append fewer at once, or connect with a higher limit",
            )
        if self._pending_bytes + size_bytes > self._max_pending_bytes:
            raise self._full()
        spans: list[asyncio.Future[AckSpan]] = []
        self._open = None
        for part, part_bytes in zip(parts, sizes_bytes, strict=True):
            span: asyncio.Future[AckSpan] = self._create_future()
            batch = self._new_batch(timeout_ms)
            batch.set_whole(part, part_bytes, span)
            batch.expect_index = expect_index
            batch.charged_bytes = part_bytes + RECORD_OVERHEAD_BYTES
            self._pending_bytes += batch.charged_bytes
            spans.append(span)
        if self._starving:
            self._wake()
        return joined(self._create_future(), spans)

    def _new_batch(self, timeout_ms: float) -> PendingBatch:
        now = self._loop.time()
        if not self.busy:
            self._moved_at = now
        batch = PendingBatch(now, now + timeout_ms / 1000 + TICK_S, timeout_ms)
        self._queued.append(batch)
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_S, self._tick)
        return batch

    def _full(self) -> DLedgerError:
        text = (
            f"{self._pending_bytes} bytes of appends wait already, the limit is {self._max_pending_bytes}: "
            "await some of them first"
        )
        return error(Code.LEADER_PENDING_FULL, text, pending_bytes=self._pending_bytes)

    # The sender's side ------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether there is anything to send or to hear about."""
        return bool(self.in_flight or self._queued)

    async def ready(self) -> None:
        """Returns when ``take`` may have something. One waiter at a time."""
        assert self._waiter is None, "one task sends"
        if self._may_send():
            return
        self._starving = len(self.in_flight) < self._window
        self._waiter = self._create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._starving = False

    def _wake(self) -> None:
        self._starving = False
        release(self._waiter)

    def _may_send(self) -> bool:
        under_way = len(self.in_flight)
        if not self._queued or under_way >= self._window:
            return False
        if under_way < EAGER_BATCHES or self._queued[0].whole is None or self._queued[0].body:
            return True
        waiting_bytes = 0
        for batch in self._queued:
            waiting_bytes += batch.body_bytes
            if batch.whole is None or batch.body or waiting_bytes + batch.body_bytes > self._shared_bytes:
                return True
        return False

    def take(self) -> PendingBatch | None:
        """The next batch to send, sequenced and in flight from now on. None when there is none, when the window is
        full, or when the queued calls wait for more.

        The caller writes it at once: from here on its outcome counts as unknown until it is answered.
        """
        while self._may_send():
            batch = self._queued[0]
            if batch is self._open:
                self._open = None
            self._absorb(batch)
            batch.seal()
            self._queued.popleft()
            if batch.empty:
                self._forget(batch)
                continue
            if batch.deadline <= self._loop.time():
                self._expire_unsent(batch)
                continue
            batch.sent = True
            batch.base_sequence = self._next_sequence
            self._next_sequence += batch.count
            self.in_flight.append(batch)
            return batch
        return None

    def _absorb(self, batch: PendingBatch) -> None:
        """The calls behind ``batch``, the first in the queue, that may travel with it."""
        if batch.whole is None or batch.whole.cancelled() or batch.body or batch.deadline <= self._loop.time():
            return
        if batch.expect_index is not None:
            return
        while len(self._queued) > 1:
            behind = self._queued[1]
            if behind.whole is None or behind.body or batch.body_bytes + behind.body_bytes > self._shared_bytes:
                return
            if behind.expect_index is not None:
                return
            del self._queued[1]
            if behind.empty:
                self._forget(behind)
            elif behind.deadline <= self._loop.time():
                self._expire_unsent(behind)
            else:
                batch.absorb(behind)

    def acknowledge(self, base_index: int, count: int, term: int, timestamp_ms: int) -> None:
        """Settles the oldest batch in flight. Raises InternalError if the answer does not fit it."""
        if not self.in_flight or self.in_flight[0].count != count:
            sent = self.in_flight[0].count if self.in_flight else 0
            raise error(Code.INTERNAL_ERROR, f"the leader acknowledged {count} records where {sent} were sent")
        batch = self.in_flight.popleft()
        batch.acknowledge(base_index, term, timestamp_ms)
        self.settled_batches += 1
        self.last_refusal = None
        self._moved_at = self._loop.time()
        self._forget(batch)
        if self._waiter is not None:
            if self._queued:
                self._wake()
            else:
                self._starving = True

    def _forget(self, batch: PendingBatch) -> None:
        self._pending_bytes -= sum(part.charged_bytes for part in batch.each())
        self._tell_drained()

    def _tell_drained(self) -> None:
        if not self._anyone_waits():
            release(self._drained)

    # Refusals ---------------------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Takes back what is in flight, known not to be appended: it goes first, under a new producer."""
        self._open = None
        while self.in_flight:
            self._queued.extendleft(reversed(self.in_flight.pop().take_apart()))
        self._next_sequence = 0

    def refuse_head(self, refusal: DLedgerError) -> None:
        """Fails the oldest call in flight, which was not appended. Those that travelled with it are sent again, and
        heard for themselves, unless their outcome is in doubt."""
        batch = self.in_flight.popleft()
        if batch.parts and not batch.doubtful:
            batch, *others = batch.take_apart()
            self.in_flight.extendleft(reversed(others))
        self._fail(batch, refusal)

    def refuse_expectation(self, refusal: DLedgerError) -> None:
        """Fails the only batch in flight, which expected another index: the log took nothing, and no sequence."""
        batch = self.in_flight.popleft()
        assert not self.in_flight, "a conditional append travels alone"
        self._next_sequence = batch.base_sequence
        self.last_refusal = None
        self._fail(batch, refusal)

    def abandon(self, refusal: DLedgerError) -> None:
        """Gives up everything in flight as of unknown outcome; a new producer's sequences follow."""
        text = f"the outcome is unknown: the producer cannot go on ({refusal})"
        if refusal.code in SAYS_ITSELF and self.in_flight:
            self.refuse_head(refusal)
        while self.in_flight:
            self._fail(self.in_flight.popleft(), OutcomeUnknown(text))
        self._next_sequence = 0

    def refuse_queued(self, refusal: DLedgerError) -> None:
        """Fails everything that was not sent."""
        self._open = None
        while self._queued:
            self._fail(self._queued.popleft(), refusal)

    def _fail(self, batch: PendingBatch, refusal: DLedgerError) -> None:
        batch.fail(refusal.copy)
        self._forget(batch)

    # Time -------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._open = None
        if any(batch.deadline <= now for batch in self._queued):
            overdue = [batch for batch in self._queued if batch.deadline <= now]
            self._queued = deque(batch for batch in self._queued if batch.deadline > now)
            for batch in overdue:
                self._expire_unsent(batch)
        for batch in chain.from_iterable(sent.each() for sent in self.in_flight):
            if batch.deadline <= now and batch.waited_for:
                self._expire_sent(batch)
        if now - self._moved_at >= TELL_INTERVAL_S and self._anyone_waits():
            self._waits.tell(self.last_refusal or self._silence())
        if self.busy:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _silence(self) -> DLedgerError:
        """The reason of a wait without a refusal."""
        text = "what was sent is not acknowledged yet" if self.in_flight else "no leader has answered yet"
        return error(Code.TIMEOUT, text)

    def _expire_unsent(self, batch: PendingBatch) -> None:
        why = f": {self.last_refusal}" if self.last_refusal else ", too much waited before it"
        self._fail(batch, DeadlineExceeded(f"not appended, it could not be sent in {batch.timeout_ms:.0f} ms{why}"))

    def _expire_sent(self, batch: PendingBatch) -> None:
        why = f" ({self.last_refusal})" if self.last_refusal else ""
        text = f"sent, but not acknowledged in {batch.timeout_ms:.0f} ms{why}: it may be in the log, or get there yet"
        batch.fail_own(lambda: OutcomeUnknown(text))
        self._tell_drained()

    def _anyone_waits(self) -> bool:
        batches = chain(self.in_flight, self._queued)
        return any(part.waited_for for batch in batches for part in batch.each())

    async def drain(self, timeout_s: float) -> None:
        """Returns when every call has its outcome, or after ``timeout_s``."""
        if not self._anyone_waits():
            return
        self._drained = self._create_future()
        await asyncio.wait({self._drained}, timeout=timeout_s)

    def close(self, reason: DLedgerError) -> None:
        """Ends every call: batches that were sent are of unknown outcome, the others fail with ``reason``."""
        self.abandon(reason)
        self.refuse_queued(reason)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
