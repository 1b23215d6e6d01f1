"""The log as a program sees it: append, get, read, status."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from dledger.client.admin_calls import Admin
from dledger.client.append_queue import AppendQueue
from dledger.client.arguments import check_index, check_place, check_producer, check_timeout_ms
from dledger.client.client_options import ClientOptions, parse_endpoints
from dledger.client.cluster_status import ClusterStatus, cluster_status
from dledger.client.connections import Connections
from dledger.client.leader_locator import LeaderLocator
from dledger.client.metadata import Metadata
from dledger.client.misuse import AsyncClient
from dledger.client.named_producer import NamedProducer
from dledger.client.producer import Producer
from dledger.client.range_reader import Range
from dledger.client.reads import Reads
from dledger.client.starts import place_of
from dledger.client.waits import Waits
from dledger.common.errors import Code, error
from dledger.common.types import Ack, Consistency, Entry
from dledger.rpc.client.cancellation import client_closed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from types import TracebackType

    from dledger.client.results import Acks, Batch, SegmentInfo
    from dledger.client.starts import Since, Start
    from dledger.common.batch import Buffer


class Log(AsyncClient):
    """A client of one group, in one event loop: ``async with dledger.connect("host:port,…") as log:``, or
    ``cluster.log("orders")``, which shares its connections with the cluster's other logs.

    Every method may raise the errors of dledger.common.errors; each has a deadline (``timeout_ms``, by default that of
    ``connect``) and goes on through failovers until then.
    """

    def __init__(
        self, endpoints: str | Sequence[str], options: ClientOptions, *, shared: Connections | None = None
    ) -> None:
        """``shared``: the connections of a cluster's client, which opens the log and outlives it; None: its own."""
        self._endpoints = parse_endpoints(endpoints)
        self._options = options
        self._shared = shared
        self._rng = options.rng or random.Random()
        self._open = False
        """Between entering and closing."""
        self._entered = 0
        """How many ``async with`` blocks of a shared log are under way."""
        self._closing: asyncio.Task[None] | None = None
        """From the first call of ``close`` on: one task, for all its callers."""
        self._started = False
        """Whether the producer runs: from the first append on."""
        self._started_conditional = False
        """Whether the producer of conditional appends was started."""

    async def __aenter__(self) -> Self:
        if self._shared is None:
            self.open()
        else:
            self._check_open()
            self._entered += 1
        return self

    def open(self) -> None:
        """Makes it ready, in the running event loop. Nothing is sent before the first use."""
        options = self._options
        group = options.group
        self._connections = self._shared or Connections(self._endpoints, options.cluster_id)
        self._leaders = LeaderLocator(self._connections, group)
        self._waits = waits = Waits(options.on_wait)
        self._queue = self._new_queue(options.max_batches_in_flight)
        self._producer = Producer(self._queue, self._leaders, group, self._rng, waits=waits)
        # Conditional appends have a producer of their own with one batch in flight. A refused one takes no sequence, so
        # nothing may be under way behind it.
        self._conditional_queue = self._new_queue(1)
        self._conditional_producer = Producer(self._conditional_queue, self._leaders, group, self._rng, waits=waits)
        for producer in (self._producer, self._conditional_producer):
            producer.on_cancelled = self._on_cancelled
        self._admin = Admin(self._leaders, options.timeout_ms, self._rng, waits=waits, check_open=self._check_open)
        self._reads = Reads(self._leaders, group, self._rng, waits=waits, check_open=self._check_open)
        self._named_producers: WeakSet[NamedProducer] = WeakSet()
        self._open, self._closing = True, None

    def _new_queue(self, window: int) -> AppendQueue:
        options = self._options
        return AppendQueue(
            options.limits,
            window=window,
            max_pending_bytes=options.max_pending_bytes,
            timeout_ms=options.timeout_ms,
            waits=self._waits,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered -= 1
        if self._shared is None or self._entered == 0:
            await self.close()

    async def close(self) -> None:
        """Waits for the outcomes of pending appends, those under a name too, at most the default timeout; then all
        that is left fails.

        Records sent by then and not answered raise OutcomeUnknown. Records that were not sent raise Unavailable
        (SHUTTING_DOWN), and so does every other call that waits. A caller that closes the client too waits for the
        same; a caller that is cancelled meanwhile ends its own waiting only. If this log shares its connections, a call
        that a node is answering goes on to its end.
        """
        if self._open:
            self._open = self._started = self._started_conditional = False
            self._closing = asyncio.create_task(self._close(), name="dledger-close")
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def give_up(self) -> None:
        """Closes without waiting for any outcome, also if ``close`` is waiting for some: those are told then."""
        if self._closing is None and not self._open:
            return
        self._queue.close(client_closed())
        self._conditional_queue.close(client_closed())
        for producer in self._named_producers:
            producer.give_up()
        await self.close()

    async def _close(self) -> None:
        try:
            timeout_s = self._options.timeout_ms / 1000
            producers = [producer.close(timeout_s) for producer in self._named_producers]
            own = [self._producer.close(timeout_s), self._conditional_producer.close(timeout_s)]
            await asyncio.gather(*own, *producers)
        finally:
            await self._reads.close()
            if self._shared is None:
                await self._connections.close()
            await self._leaders.close()

    # Appending --------------------------------------------------------------------------------------------------

    async def append(self, record: bytes, *, expect_index: int | None = None, timeout_ms: float | None = None) -> Ack:
        """Appends one record, and says where it is once a majority holds it durably.

        It is appended once, however often the client has to send it. Calls that run side by side, by ``asyncio.gather``
        or in a TaskGroup, are appended in the order of their beginning. Raises UNEXPECTED_ARGUMENT (not bytes),
        RECORD_TOO_LARGE, PendingFull (``max_pending_bytes`` wait), DeadlineExceeded (not appended), OutcomeUnknown
        (perhaps appended, perhaps later), or the log's refusal. A call that is cancelled before it is sent is not
        appended.

        With ``expect_index`` the append is conditional: it raises WrongExpectedIndex unless the record gets that index.
        The ``next_index`` of the error is the true one. That is exact over retries and failovers. Conditional appends
        are made one after the other. They have no order with unconditional ones that wait at the same time: await those
        first.
        """
        return await self.enqueue(record, expect_index=expect_index, timeout_ms=timeout_ms)

    async def append_many(
        self, records: Sequence[Buffer], *, expect_index: int | None = None, timeout_ms: float | None = None
    ) -> Acks:
        """Appends the records as one atomic batch with consecutive indexes; raises as ``append``. Other calls that wait
        at the same time may share the batch; each has its own outcome.

        A call over ``max_batch_bytes`` travels as several batches. If only some of them are known to be appended, the
        error is OutcomeUnknown. The ``acknowledged`` in its metadata counts the appended records.

        ``expect_index``: as for ``append``, of the first record. Such a call is one batch, or BATCH_TOO_LARGE.
        """
        return await self.enqueue_many(records, expect_index=expect_index, timeout_ms=timeout_ms)

    def enqueue(
        self, record: bytes, *, expect_index: int | None = None, timeout_ms: float | None = None
    ) -> asyncio.Future[Ack]:
        """As ``append``, for many at a time without a task for each. It takes the record now, in the order of the
        calls, and returns a future of its ack. Raises at once UNEXPECTED_ARGUMENT, RECORD_TOO_LARGE and PendingFull;
        the future raises the rest."""
        if expect_index is not None:
            return self._conditional(expect_index).append(record, timeout_ms, expect_index=expect_index)
        if not self._started:
            self._start()
        return self._queue.append(record, timeout_ms)

    def enqueue_many(
        self, records: Sequence[Buffer], *, expect_index: int | None = None, timeout_ms: float | None = None
    ) -> asyncio.Future[Acks]:
        """As ``append_many``, with a future of the acks; raises as ``enqueue``."""
        if expect_index is not None:
            return self._conditional(expect_index).append_many(records, timeout_ms, expect_index=expect_index)
        if not self._started:
            self._start()
        return self._queue.append_many(records, timeout_ms)

    def producer(self, name: str, *, epoch: int = 0, sequence: int = 0) -> NamedProducer:
        """Appends that may be made again, by another process too, and are in the log once: see ``NamedProducer``.

        ``sequence``: of the epoch's records, so many were appended before, by somebody else.
        Raises UNEXPECTED_ARGUMENT.
        """
        self._check_open()
        check_producer(name, epoch, sequence)
        producer = NamedProducer(
            name, epoch, sequence, leaders=self._leaders, options=self._options, rng=self._rng, waits=self._waits
        )
        self._named_producers.add(producer)
        return producer

    def _conditional(self, expect_index: int) -> AppendQueue:
        """The queue of conditional appends. Raises UNEXPECTED_ARGUMENT."""
        check_index(expect_index)
        if not self._started_conditional:
            self._check_open()
            self._conditional_producer.start()
            self._started_conditional = True
        return self._conditional_queue

    @property
    def closed(self) -> bool:
        """Whether somebody began to close it: it takes no calls any more."""
        return self._closing is not None

    @property
    def has_ended(self) -> bool:
        """Whether all that it had begun has its outcome."""
        return self._closing is not None and self._closing.done()

    def _start(self) -> None:
        self._check_open()
        self._producer.start()
        self._started = True

    def _on_cancelled(self) -> None:
        """Of a producer's task, by the program: the next call starts another one."""
        self._started = self._started_conditional = False

    def _check_open(self) -> None:
        if self._closing is not None:
            raise client_closed()
        if not self._open:
            raise error(Code.SHUTTING_DOWN, "the client is not open: use it inside `async with dledger.connect(…)`")
        self._leaders.check()

    def _timeout_ms(self, timeout_ms: float | None) -> float:
        """A call's own, or the client's. Raises UNEXPECTED_ARGUMENT."""
        if timeout_ms is None:
            return self._options.timeout_ms
        check_timeout_ms(timeout_ms)
        return timeout_ms

    # Reading ----------------------------------------------------------------------------------------------------

    async def get(
        self,
        index: int,
        consistency: Consistency = Consistency.LINEARIZABLE,
        *,
        node: str | None = None,
        timeout_ms: float | None = None,
    ) -> Entry:
        """The committed record at ``index``. Calls that run side by side share messages.

        Linearizable: it sees every append acknowledged before it begins. ``node`` (an id or an address) asks that node.
        Raises UNEXPECTED_ARGUMENT (no possible index), PendingFull, OutOfRange, Unavailable, DeadlineExceeded. Raises
        NotLeader only for a ``node`` that does not lead.
        """
        self._check_open()
        check_index(index)
        check_place(consistency, node)
        return await self._reads.get(index, consistency, node, self._timeout_ms(timeout_ms))

    async def read_batches(
        self,
        start: Start = 0,
        end: int | None = None,
        *,
        since: Since | None = None,
        follow: bool = False,
        consistency: Consistency = Consistency.LINEARIZABLE,
        node: str | None = None,
        timeout_ms: float | None = None,
    ) -> AsyncGenerator[Batch]:
        """The records from ``start`` to ``end`` (exclusive) in order, by the batches they were appended in.

        A negative ``start`` counts from the end: -5 for the last five records. ``"latest"`` is the end itself: with
        ``follow`` the read gives only what is appended from its first step on. ``since``, instead of ``start``, is a
        time: a datetime with a time zone, or milliseconds since the epoch. The read begins at the first record of that
        time or later, by the log's clock. A record of a named index must be there; these beginnings skip what was
        trimmed.

        Without ``end``: to the commit index confirmed at the call. With COMMITTED consistency this is the commit index
        known to the node asked first. With ``follow``: for as long as the caller likes. A read ends without an error
        only there, or at ``end`` if this comes first. A node that takes over and knows of fewer commits is waited for.
        Goes on by itself after a failover, without a gap or a double. ``timeout_ms`` bounds the wait for the next
        batch. A follower's wait while nothing is appended does not count.
        """
        lists = self.read_lists(
            start, end, since=since, follow=follow, consistency=consistency, node=node, timeout_ms=timeout_ms
        )
        try:
            async for batches in lists:
                for batch in batches:
                    yield batch
        finally:
            await lists.aclose()

    async def read_lists(
        self,
        start: Start = 0,
        end: int | None = None,
        *,
        since: Since | None = None,
        follow: bool = False,
        consistency: Consistency = Consistency.LINEARIZABLE,
        node: str | None = None,
        timeout_ms: float | None = None,
    ) -> AsyncGenerator[list[Batch]]:
        """As ``read_batches``, in lists of the batches that came in one message, about 1 MiB."""
        self._check_open()
        wanted = Range(place_of(start, since), end, follow, consistency, node)
        wanted.check()
        lists = self._reads.lists(wanted, self._timeout_ms(timeout_ms))
        try:
            async for batches in lists:
                yield batches
        finally:
            await lists.aclose()

    async def read(
        self,
        start: Start = 0,
        end: int | None = None,
        *,
        since: Since | None = None,
        follow: bool = False,
        consistency: Consistency = Consistency.LINEARIZABLE,
        node: str | None = None,
        timeout_ms: float | None = None,
    ) -> AsyncGenerator[Entry]:
        """As ``read_batches``, record by record."""
        batches = self.read_batches(
            start, end, since=since, follow=follow, consistency=consistency, node=node, timeout_ms=timeout_ms
        )
        try:
            async for batch in batches:
                for entry in batch.entries():
                    yield entry
        finally:
            await batches.aclose()

    async def bounds(
        self, consistency: Consistency = Consistency.LINEARIZABLE, *, timeout_ms: float | None = None
    ) -> tuple[int, int]:
        """The first index and the commit index (−1: nothing committed), by default as the leader confirms them now."""
        self._check_open()
        check_place(consistency, None)
        return await self._reads.bounds(consistency, self._timeout_ms(timeout_ms))

    async def segments(self, *, node: str | None = None, timeout_ms: float | None = None) -> list[SegmentInfo]:
        """How the log is cut into segments on ``node``, or on any node: for callers that share a range of it among
        them.

        A hint: the next roll or trim changes it. Raises Unavailable, UnknownMember.
        """
        self._check_open()
        check_place(Consistency.COMMITTED, node)
        return await self._reads.segments(node, self._timeout_ms(timeout_ms))

    # The cluster ------------------------------------------------------------------------------------------------

    async def metadata(self, *, timeout_ms: float | None = None) -> Metadata:
        """The members and the leader, as the leader knows them, or if none answers in time, as any node does.

        Asked once: raises Unavailable at once when nobody can be reached, DeadlineExceeded when nobody answers.
        """
        self._check_open()
        return await self._leaders.newest_metadata(self._timeout_ms(timeout_ms))

    async def status(self, *, timeout_ms: float | None = None) -> ClusterStatus:
        """The state of every member, also of those that cannot be reached, or do not answer in time.

        Asked once: raises Unavailable at once when nobody can be reached, DeadlineExceeded when nobody answers.
        """
        self._check_open()
        channels, timeout_ms = self._connections.channels, self._timeout_ms(timeout_ms)
        return await cluster_status(channels, self._leaders, self._options.group, timeout_ms)

    @property
    def admin(self) -> Admin:
        """What an operator does: leadership, members, settings, retention."""
        self._check_open()
        return self._admin
