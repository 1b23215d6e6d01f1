"""The same log for programs without an event loop: the client runs in a thread of its own, any thread may call."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dledger.client.blocking_admin import BlockingAdmin
from dledger.common.batch import as_records
from dledger.common.errors import Code, DLedgerError, Unavailable, error
from dledger.common.types import Ack, Consistency, Entry
from dledger.rpc.client.cancellation import client_closed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
    from concurrent.futures import Future
    from types import TracebackType

    from dledger.client.admin_calls import Admin
    from dledger.client.cluster_status import ClusterStatus
    from dledger.client.log import Log
    from dledger.client.metadata import Metadata
    from dledger.client.named_producer import NamedProducer
    from dledger.client.results import Acks, Batch, SegmentInfo
    from dledger.common.batch import Buffer

Result = TypeVar("Result")

END_S = 1.0
"""How long the calls of a client that has ended may take to say so, each to its caller."""


class BlockingLog:
    """``Log``, blocking: ``with dledger.connect_blocking("host:port,…") as log:``. Safe to share between threads.

    Every method does, raises and promises what ``Log``'s does. An interrupted call (KeyboardInterrupt) is cancelled; an
    append that had been sent by then may still be appended. A process that was forked has no thread of the client's:
    connect after the fork.
    """

    def __init__(self, make: Callable[[], Log]) -> None:
        self._make = make
        self._log: Log | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._handing_over = threading.RLock()
        """So that whatever a thread hands to the loop is there before the loop is told to stop. Whoever holds it may
        collect a reader that was forgotten, which hands something over as well."""

    def __enter__(self) -> Self:
        log = self._make()
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._serve, args=(loop, log), name="dledger-client", daemon=True)
        thread.start()
        self._loop, self._thread, self._process = loop, thread, os.getpid()
        self._log = self._run(log.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for pending appends as ``Log.close`` does, and ends the thread. Several threads may call it at once."""
        loop, thread, log = self._loop, self._thread, self._log
        if loop is None or thread is None or self._process != os.getpid():
            return
        try:
            if log is not None:
                self._run(log.close())
        except DLedgerError:
            if self._loop is loop:
                raise  # otherwise another thread has closed it meanwhile, all of it
        finally:
            with self._handing_over:
                if self._loop is loop:
                    self._loop = self._log = None
                    loop.call_soon_threadsafe(loop.stop)
            thread.join()

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop, log: Log) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(_end_what_is_left(log))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs it in the client's loop and waits; an interrupt cancels it."""
        if refusal := self._why_not():
            work.close()
            raise refusal
        future: Future[Result] | None = None
        with self._handing_over:
            if self._loop is not None:
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
        if future is None:
            work.close()
            if self._thread is not None:
                self._thread.join()  # so that whatever was under way has its outcome by now
            text = "the client is not open: use it inside `with dledger.connect_blocking(…)`"
            raise error(Code.SHUTTING_DOWN, text)
        try:
            return future.result()
        except CancelledError:
            raise client_closed() from None
        except BaseException:
            future.cancel()
            raise

    def _why_not(self) -> DLedgerError | None:
        """Why waiting here would never end."""
        if self._process != os.getpid():
            return error(Code.SHUTTING_DOWN, "the client was opened by the process before a fork: connect after it")
        if self._thread is threading.current_thread():
            text = "a blocking call in the client's own thread would wait for itself: make it in another one"
            return error(Code.UNEXPECTED_ARGUMENT, text)
        return None

    def _abandon(self, lists: AsyncGenerator[list[Batch]]) -> None:
        """Closes the stream, and does not wait: one that was forgotten is collected in any thread, the loop's too."""
        if self._process != os.getpid():
            return  # a thread that was not forked may have held the lock, and nobody gives it back here
        with self._handing_over:
            if self._loop is not None:
                asyncio.run_coroutine_threadsafe(_close(lists), self._loop)

    def _call(self, method: Callable[[Log], Awaitable[Result]]) -> Result:
        async def work() -> Result:
            log = self._log
            if log is None:
                raise client_closed()
            return await method(log)

        return self._run(work())

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

        return BlockingNamedProducer(self._call(opened), self._run)

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
        start: int = 0,
        end: int | None = None,
        *,
        follow: bool = False,
        consistency: Consistency = Consistency.LINEARIZABLE,
        node: str | None = None,
        timeout_ms: float | None = None,
    ) -> Iterator[Batch]:
        """The records of a range, by batches; the stream is closed with the iterator."""

        async def opened(log: Log) -> AsyncGenerator[list[Batch]]:
            return log.read_lists(start, end, follow=follow, consistency=consistency, node=node, timeout_ms=timeout_ms)

        lists = self._call(opened)
        try:
            while batches := self._run(
                _next_or_none(lists)
            ):  # from one thread to the other once a message, not a batch
                yield from batches
        finally:
            self._abandon(lists)

    def read(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        follow: bool = False,
        consistency: Consistency = Consistency.LINEARIZABLE,
        node: str | None = None,
        timeout_ms: float | None = None,
    ) -> Iterator[Entry]:
        """As ``read_batches``, record by record."""
        for batch in self.read_batches(
            start, end, follow=follow, consistency=consistency, node=node, timeout_ms=timeout_ms
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

    def append_many(self, records: Sequence[Buffer]) -> None:
        """Appends the records; waits for room, not for the outcome: that is what ``flush`` is for, and leaving."""
        self._run(self._producer.append_many(as_records(records)))

    def append_body(self, body: Buffer, count: int) -> None:
        """As ``append_many``, with a ready-made body of ``count`` records."""
        self._run(self._producer.append_body(body, count))

    def flush(self) -> None:
        """Returns when everything appended so far is in the log. Raises what the producer failed of."""
        self._end(self._producer.flush(), tells=True)

    def _end(self, work: Coroutine[Any, Any, None], *, tells: bool) -> None:
        """Also where the client was closed meanwhile: the producer knows what became of what it had been given."""
        try:
            self._run(work)
        except Unavailable:
            if not self._producer.has_ended:
                raise
            if tells:
                self._producer.check()


async def _end_what_is_left(log: Log) -> None:
    """Calls of other threads that are still under way, and a close that was interrupted: they learn from the log that
    it has ended, which knows what was sent. Only who goes on nevertheless is cancelled."""
    ending = asyncio.create_task(log.end(), name="dledger-end")
    await asyncio.wait({ending, *_others()}, timeout=END_S)
    tasks = _others()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _others() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def _next_or_none(lists: AsyncGenerator[list[Batch]]) -> list[Batch] | None:
    return await anext(lists, None)


async def _close(lists: AsyncGenerator[list[Batch]]) -> None:
    await lists.aclose()
