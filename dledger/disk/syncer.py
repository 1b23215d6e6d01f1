"""Off the event loop and back: how the group commits of all logs of a process wait for the disk.

::

    a log's Syncer ──┬─▶ KernelQueue   one Linux AIO context for the event loop: one file's fdatasync goes to the
    (no thread, no   │                 kernel's own workers, and its end comes through an eventfd that the loop watches
     AIO context)    └─▶ SyncThreads   a few threads: directories, several files, and where the kernel has no AIO

In the kernel's hands no thread of ours takes part, so no completion waits for the interpreter's lock. Under load that
is a third of an fdatasync's time.

Each request is one log's, with an error of its own. A failed sync is told only to the log whose files it covered. Votes
and terms must not wait for data at all, so they do not come here: see ``Disk.run_urgent``.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import NewType, Protocol

try:
    from caio import linux_aio
except ImportError:  # not Linux, or built without it
    linux_aio = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

Handle = NewType("Handle", int)
"""An open file."""

OnSynced = Callable[[OSError | None], None]

KERNEL_REQUESTS = 256
"""In flight at a time in one AIO context; what goes beyond waits in threads."""
MAX_SYNC_THREADS = 16
LINGER_S = 10.0
"""A thread that had nothing to do for so long ends."""
_NOTHING_BEGUN = (OSError, SystemError, ValueError, OverflowError, NotImplementedError)
"""What caio raises, by errno, when the kernel took nothing: no AIO, too much of it in the system, a file without it."""


class Syncer(Protocol):
    """Makes one log's files durable, off the event loop. The next request comes when the one before has been told of.

    Costs nothing while nothing is asked of it."""

    def sync(self, handles: Sequence[Handle], directories: Sequence[str], on_done: OnSynced) -> None:
        """Syncs each file (fdatasync), then each directory (fsync), then calls ``on_done`` on the event loop. Its
        argument is the first error, after which nothing more was tried, or None. The files stay open until then."""
        ...

    def close(self) -> None:
        """Waits for what was asked for."""
        ...


class CanSync(Protocol):
    """The two system calls, each of which waits for the device."""

    def fdatasync(self, handle: Handle) -> None: ...

    def fsync_directory(self, path: str) -> None: ...


class SyncPool:
    """Makes the syncers of a process, with shared threads and a shared kernel queue."""

    def __init__(self, disk: CanSync) -> None:
        self._threads = SyncThreads(disk)
        self._queue: KernelQueue | None = None
        self._is_refused = False

    def syncer(self) -> Syncer:
        """The quickest kind that this system has, bound to the running event loop."""
        queue = self._kernel_queue()
        in_threads = ThreadSyncer(self._threads)
        return in_threads if queue is None else KernelSyncer(queue, in_threads)

    def _kernel_queue(self) -> KernelQueue | None:
        queue = self._queue
        if queue is not None and not queue.is_closed and queue.loop is asyncio.get_running_loop():
            return queue
        if linux_aio is None:
            return None
        try:
            self._queue = KernelQueue()
        except _NOTHING_BEGUN as reason:
            if not self._is_refused:
                logger.info("no kernel AIO (%s): threads wait for the disk instead", reason)
            self._is_refused = True
            return None
        return self._queue


class SyncThreads:
    """At most ``max_threads`` threads, made when they are needed, and one queue. An executor and its futures would take
    30 to 50 µs more for each sync."""

    def __init__(self, disk: CanSync, max_threads: int = MAX_SYNC_THREADS, linger_s: float = LINGER_S) -> None:
        self._disk = disk
        self._max_threads = max_threads
        self._linger_s = linger_s
        self._requests: SimpleQueue[_ThreadRequest] = SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._numbers = count()
        self.threads = 0
        """Alive now."""

    def put(self, request: _ThreadRequest) -> None:
        """Has ``request`` done in one of the threads."""
        with self._lock:
            self._requests.put(request)
            self._unfinished += 1
            if self._unfinished <= self.threads or self.threads == self._max_threads:
                return
            self.threads += 1
        threading.Thread(target=self._work, name=f"dledger-sync-{next(self._numbers)}", daemon=True).start()

    def _work(self) -> None:
        while (request := self._next()) is not None:
            failure = self._sync(request)
            with self._lock:
                self._unfinished -= 1  # before it is told: what is asked for next needs no other thread
            request.end(failure)

    def _next(self) -> _ThreadRequest | None:
        while True:
            try:
                return self._requests.get(timeout=self._linger_s)
            except Empty:
                with self._lock:
                    if self._requests.empty():
                        self.threads -= 1
                        return None

    def _sync(self, request: _ThreadRequest) -> OSError | None:
        try:
            for handle in request.handles:
                self._disk.fdatasync(handle)
            for directory in request.directories:
                self._disk.fsync_directory(directory)
        except OSError as failure:
            return failure
        return None


class _ThreadRequest:
    __slots__ = ("_loop", "_on_done", "directories", "handles", "has_ended")

    def __init__(self, handles: Sequence[Handle], directories: Sequence[str], on_done: OnSynced) -> None:
        self.handles = handles
        self.directories = directories
        self._on_done = on_done
        self._loop = asyncio.get_running_loop()
        self.has_ended = threading.Event()

    def end(self, failure: OSError | None) -> None:
        """In the thread."""
        self.has_ended.set()
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._on_done, failure)


class ThreadSyncer:
    """One log's requests to the threads that it shares with others."""

    def __init__(self, threads: SyncThreads) -> None:
        self._threads = threads
        self._request: _ThreadRequest | None = None

    def sync(self, handles: Sequence[Handle], directories: Sequence[str], on_done: OnSynced) -> None:
        assert self._request is None or self._request.has_ended.is_set(), "a sync is in flight"
        self._request = _ThreadRequest(handles, directories, on_done)
        self._threads.put(self._request)

    def close(self) -> None:
        if self._request is not None:
            self._request.has_ended.wait()


class KernelQueue:
    """The AIO context of one event loop. It lives as long as any log uses it."""

    def __init__(self) -> None:
        """Raises one of ``_NOTHING_BEGUN`` where the kernel has no AIO to give."""
        self._context = linux_aio.Context(KERNEL_REQUESTS)
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(self._context.fileno, self._on_readable)
        self._users = 0
        self._ended: list[_KernelRequest] = []
        self.is_closed = False

    def join(self) -> None:
        self._users += 1

    def leave(self) -> None:
        """The last one to leave closes it."""
        self._users -= 1
        if not self._users:
            self.is_closed = True
            self.loop.remove_reader(self._context.fileno)

    def submit(self, handle: Handle, request: _KernelRequest) -> bool:
        """False: the kernel did not take it, and ``request`` will not be told."""
        operation = linux_aio.Operation.fdsync(handle)
        operation.set_callback(partial(self._note, request))
        try:
            return self._context.submit(operation) == 1
        except _NOTHING_BEGUN:
            return False

    def wait(self) -> None:
        """Blocks until some request has ended. The requester is told in a later turn of the loop."""
        self._context.process_events(KERNEL_REQUESTS, 1, -1)
        self.loop.call_soon(self._tell)

    def _note(self, request: _KernelRequest, result: int) -> None:
        request.result = result
        self._ended.append(request)

    def _on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError):  # counted with an earlier one
            self._context.poll()
        while self._context.process_events(KERNEL_REQUESTS):
            pass  # the kernel may have taken more than it was asked to be ready for
        self._tell()

    def _tell(self) -> None:
        if not self._ended:
            return
        ended, self._ended = self._ended, []
        for request in ended[1:]:  # by the loop: the others hear of their ends, even if one log fails at its own
            self.loop.call_soon(request.tell)
        ended[0].tell()


class _KernelRequest:
    __slots__ = ("_on_done", "result")

    def __init__(self, on_done: OnSynced) -> None:
        self._on_done = on_done
        self.result: int | None = None
        """None: in flight."""

    def tell(self) -> None:
        assert self.result is not None, "it is in flight"
        self._on_done(_failure(self.result))


class KernelSyncer:
    """One file's fdatasync goes to the kernel, what is more (a group across a roll) to a thread."""

    def __init__(self, queue: KernelQueue, in_threads: ThreadSyncer) -> None:
        self._queue = queue
        self._in_threads = in_threads
        self._request: _KernelRequest | None = None
        queue.join()

    @property
    def is_in_flight(self) -> bool:
        """Whether the kernel has a request of this log."""
        return self._request is not None and self._request.result is None

    def sync(self, handles: Sequence[Handle], directories: Sequence[str], on_done: OnSynced) -> None:
        assert not self.is_in_flight, "a sync is in flight"
        if len(handles) == 1 and not directories:
            request = _KernelRequest(on_done)
            if self._queue.submit(handles[0], request):
                self._request = request
                return
        # Of what the kernel does not take the thread's own system call says what is wrong, if anything is.
        self._in_threads.sync(handles, directories, on_done)

    def close(self) -> None:
        self._in_threads.close()
        while self.is_in_flight:
            self._queue.wait()
        self._queue.leave()


def _failure(result: int) -> OSError | None:
    """``result`` is a system call's: 0, or minus the error in two's complement."""
    if result == 0:
        return None
    code = (1 << 64) - result if result >> 63 else errno.EIO
    return OSError(code, os.strerror(code))
