"""The log of the client for programs without an event loop: the client runs in a thread of its own, any thread may
call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from dledger.client.blocking_admin import BlockingAdmin
from dledger.client.loop_thread import LoopThread
from dledger.client.misuse import BlockingClient
from dledger.common.batch import as_records
from dledger.common.errors import Unavailable
from dledger.common.types import Ack, Consistency, Entry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
    from types import TracebackType

    from dledger.client.admin_calls import Admin
    from dledger.client.cluster_status import ClusterStatus
    from dledger.client.log import Log
    from dledger.client.metadata import Metadata
    from dledger.client.named_producer import NamedProducer
    from dledger.client.results import Acks, Batch, SegmentInfo
    from dledger.client.starts import Since, Start
    from dledger.common.batch import Buffer

Result = TypeVar("Result")


class BlockingLog(BlockingClient):
    """``Log``, blocking: ``with dledger.connect_blocking("host:port,…") as log:``. Safe to share between threads.

    Every method does, raises and promises what ``Log``'s does. An interrupted call (KeyboardInterrupt) is cancelled; an
    append that had been sent by then may still be appended. A process that was forked has no thread of the client's:
    connect after the fork.
    """

    def __init__(self, log: Log, shared: LoopThread | None = None) -> None:
        """``shared``: the thread of a cluster's client, where ``log`` is open; None: one of its own."""
        self._log = log
        self._owns_thread = shared is None
        self._thread = shared or LoopThread(log, "dledger.connect_blocking(…)")

    def __enter__(self) -> Self:
        if self._owns_thread:
            self._thread.open()
        else:
            self._thread.run(self._log.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._owns_thread:
            self._thread.close()
        elif self._thread.is_open:
            self._thread.run(self._log.__aexit__(kind, value, traceback))

    def close(self) -> None:
        """Waits for pending appends as ``Log.close`` does, and ends the thread if it has one of its own. Several
        threads may call it at once."""
        if self._owns_thread:
            self._thread.close()
        elif self._thread.is_open:
            self._thread.run(self._log.close())

    def _call(self, method: Callable[[Log], Awaitable[Result]]) -> Result:
        async def work() -> Result:
            return await method(self._log)

        return self._thread.run(work())

    # The methods of Log -----------------------------------------------------------------------------------------

    def append(self, record: bytes, *, expect_index: int | None = None, timeout_ms: float | None = None) -> Ack:
        """Appends one record and waits for its ack. From several threads at once, records share batches."""
        return self._call(lambda log: log.append(record, expect_index=expect_index, timeout_ms=timeout_ms))

    def append_many(
        self, records: Sequence[Buffer], *, expect_index: int | None = None, timeout_ms: float | None = None
    ) -> Acks:
        """Appends the records as one batch and waits for its acks."""
        taken = as_records(records)  # here: an iterator may read the log itself
        return self._call(lambda log: log.append_many(taken, expect_index=expect_index, timeout_ms=timeout_ms))

    def producer(self, name: str, *, epoch: int = 0, sequence: int = 0) -> BlockingNamedProducer:
        """Appends that may be made again, by another process too, and are in the log once: see ``NamedProducer``."""

        async def opened(log: Log) -> NamedProducer:
            return log.producer(name, epoch=epoch, sequence=sequence)

        return BlockingNamedProducer(self._call(opened), self._thread.run)

    def get(
        self,
        index: int,
        consistency: Consistency = Consistency.LINEARIZABLE,
        *,
        node: str | None = None,
        timeout_ms: float | None = None,
    ) -> Entry:
        """The committed record at ``index``."""
        return self._call(lambda log: log.get(index, consistency, node=node, timeout_ms=timeout_ms))

    def read_batches(
        self,
        start: Start = 0,
        end: int | None = None,
        *,
        since: Since | None = None,
        follow: bool = False,
        consistency: Consistency = Consistency.LINEARIZABLE,
        node: str | None = None,
        timeout_ms: float | None = None,
    ) -> Iterator[Batch]:
        """The records of a range, by batches; the stream is closed with the iterator."""

        async def opened(log: Log) -> AsyncGenerator[list[Batch]]:
            return log.read_lists(
                start, end, since=since, follow=follow, consistency=consistency, node=node, timeout_ms=timeout_ms
            )

        lists = self._call(opened)
        try:
            while batches := self._thread.run(
                _next_or_none(lists)
            ):  # from one thread to the other once a message, not a batch
                yield from batches
        finally:
            self._thread.hand_over(_close(lists))

    def read(
        self,
        start: Start = 0,
        end: int | None = None,
        *,
        since: Since | None = None,
        follow: bool = False,
        consistency: Consistency = Consistency.LINEARIZABLE,
        node: str | None = None,
        timeout_ms: float | None = None,
    ) -> Iterator[Entry]:
        """As ``read_batches``, record by record."""
        for batch in self.read_batches(
            start, end, since=since, follow=follow, consistency=consistency, node=node, timeout_ms=timeout_ms
        ):
            yield from batch.entries()

    def bounds(
        self, consistency: Consistency = Consistency.LINEARIZABLE, *, timeout_ms: float | None = None
    ) -> tuple[int, int]:
        """The first index and the commit index."""
        return self._call(lambda log: log.bounds(consistency, timeout_ms=timeout_ms))

    def segments(self, *, node: str | None = None, timeout_ms: float | None = None) -> list[SegmentInfo]:
        """How the log is cut into segments on ``node``, or on any one."""
        return self._call(lambda log: log.segments(node=node, timeout_ms=timeout_ms))

    def metadata(self, *, timeout_ms: float | None = None) -> Metadata:
        """The members and the leader."""
        return self._call(lambda log: log.metadata(timeout_ms=timeout_ms))

    def status(self, *, timeout_ms: float | None = None) -> ClusterStatus:
        """The state of every member."""
        return self._call(lambda log: log.status(timeout_ms=timeout_ms))

    @property
    def admin(self) -> BlockingAdmin:
        """What an operator does: leadership, members, settings, retention."""
        return BlockingAdmin(self._call_admin)

    def _call_admin(self, method: Callable[[Admin], Awaitable[Result]], /) -> Result:
        return self._call(lambda log: method(log.admin))


class BlockingNamedProducer:
    """``NamedProducer``, blocking: ``with log.producer("name", epoch=7) as producer:``."""

    def __init__(self, producer: NamedProducer, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._producer = producer
        self._run = run

    def __enter__(self) -> Self:
        self._run(self._producer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(self._producer.__aexit__(kind, value, traceback), tells=value is None)

    def append(self, record: Buffer) -> Ack:
        """Appends one record and waits for its ack."""
        ack: Ack = self._run(self._producer.append(record))
        return ack

    def append_many(self, records: Sequence[Buffer]) -> Acks:
        """Appends the records and waits for their acks."""
        acks: Acks = self._run(self._producer.append_many(as_records(records)))
        return acks

    def enqueue_many(self, records: Sequence[Buffer]) -> None:
        """Appends the records. It waits for room, not for the outcome: ``flush`` does, and so does leaving."""
        self._run(self._producer.enqueue_many(as_records(records)))

    def enqueue_body(self, body: Buffer, count: int) -> None:
        """As ``enqueue_many``, with a ready-made body of ``count`` records."""
        self._run(self._producer.enqueue_body(body, count))

    def flush(self) -> None:
        """Returns when everything appended so far is in the log. Raises what the producer failed of."""
        self._end(self._producer.flush(), tells=True)

    def _end(self, work: Coroutine[Any, Any, None], *, tells: bool) -> None:
        """Waits for ``work``. If the client was closed meanwhile, the producer tells: it knows the outcome of
        everything it was given."""
        try:
            self._run(work)
        except Unavailable:
            if not self._producer.has_ended:
                raise
            if tells:
                self._producer.check()


async def _next_or_none(lists: AsyncGenerator[list[Batch]]) -> list[Batch] | None:
    return await anext(lists, None)


async def _close(lists: AsyncGenerator[list[Batch]]) -> None:
    await lists.aclose()
