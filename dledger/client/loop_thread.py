"""An event loop in a thread of its own, for programs without one: a client runs there, any thread may call it."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import uvloop

from dledger.common.errors import Code, DLedgerError, error
from dledger.rpc.client.cancellation import client_closed

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

Result = TypeVar("Result")

END_S = 1.0
"""How long the calls of a client that has ended may take to say so, each to its caller."""


class Client(Protocol):
    """What the thread runs: a ``Log`` or a ``Cluster``."""

    async def __aenter__(self) -> object: ...

    async def close(self) -> None: ...

    async def give_up(self) -> None: ...


class LoopThread:
    """Runs one client between ``open`` and ``close``."""

    def __init__(self, client: Client, opened_by: str) -> None:
        """``opened_by``: how users open such a client, for the refusal of a call before."""
        self._client = client
        self._opened_by = opened_by
        self._is_entered = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._handing_over = threading.RLock()
        """With it, work that a thread hands over reaches the loop before the loop is told to stop. The thread that
        holds it may collect a forgotten reader, and this hands something over as well."""

    def open(self) -> None:
        """Starts the thread, and the client in it."""
        loop = uvloop.new_event_loop()
        thread = threading.Thread(target=self._serve, args=(loop,), name="dledger-client", daemon=True)
        thread.start()
        self._loop, self._thread, self._process = loop, thread, os.getpid()
        self.run(self._client.__aenter__())
        self._is_entered = True

    def close(self) -> None:
        """Waits for pending appends as ``Log.close`` does, and ends the thread. Several threads may call it at once."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or self._process != os.getpid():
            return
        try:
            if self._is_entered:
                self.run(self._client.close())
        except DLedgerError:
            if self._loop is loop:
                raise  # otherwise another thread has closed it meanwhile, all of it
        finally:
            with self._handing_over:
                if self._loop is loop:
                    self._loop, self._is_entered = None, False
                    loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(_end_what_is_left(self._client))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    @property
    def is_open(self) -> bool:
        """Whether this process has it open."""
        return self._loop is not None and self._process == os.getpid()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs it in the client's loop and waits; an interrupt cancels it. Raises SHUTTING_DOWN."""
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
                self._thread.join()  # so that everything under way has its outcome by now
            text = f"the client is not open: use it inside `with {self._opened_by}`"
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

    def hand_over(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs it, and does not wait: a reader may be forgotten in any thread, the loop's too."""
        if self._process != os.getpid():
            work.close()
            return  # a thread that was not forked may have held the lock, and nobody gives it back here
        with self._handing_over:
            if self._loop is not None:
                asyncio.run_coroutine_threadsafe(work, self._loop)
                return
        work.close()


async def _end_what_is_left(client: Client) -> None:
    """Ends calls of other threads that are still under way, and an interrupted close. They learn from the client that
    it has ended, and it knows the records it sent. Only a task that goes on nevertheless is cancelled."""
    ending = asyncio.create_task(client.give_up(), name="dledger-end")
    await asyncio.wait({ending, *_others()}, timeout=END_S)
    tasks = _others()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _others() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
