"""One world, many processes: every node has an event loop of its own, with its own clock, which may stand still or end.

::

    WorldLoop     one heap of timers, one queue, true time; the network, the disks, clients and the nemesis live here
      ▲  ▲
      │  └── ProcessLoop n1   the loop that n1's code finds running: its clock runs at n1's rate; paused, everything of
      │                       n1 waits, as behind a SIGSTOP; ended, nothing of n1 ever runs again, as behind a SIGKILL
      └───── ProcessLoop n0   …

Futures of one loop are awaited there alone. ``ProcessLoop.ask`` carries a question into a process and its answer out,
as an RPC does.
"""

from __future__ import annotations

import asyncio
import functools
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from inspect import CORO_CREATED, getcoroutinestate
from itertools import count
from math import inf
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

from dledger.common.errors import DLedgerError
from tests.support.virtual_time import Deadlock, LimitReached, VirtualTimeLoop, run_virtual

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


BURIAL_ROUNDS = 5


class GoneError(Exception):
    """The process ended before it answered: whether it did what it was asked is unknown."""


class Declined(Exception):
    """What was asked of a process found there that it is not to be done."""


REFUSALS = (DLedgerError, Declined)


class WorldLoop(VirtualTimeLoop):
    """Virtual time without a selector: timers in the order of their time, and of their making where that is one."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = super().time()
        self._end_s = inf
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._made = count()
        self._failure: BaseException | None = None
        self._queue: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]  # BaseEventLoop's

    def time(self) -> float:
        return self._now_s

    def set_limit(self, limit_s: float) -> None:
        self._end_s = self._now_s + limit_s

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        deed = _Deed(callback, args, self)
        self._queue.append(deed)
        return deed

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _WorldTimer(when, callback, args, self)
        heappush(self._timers, (when, next(self._made), timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args)

    def arm(self, when_s: float, timer: asyncio.TimerHandle) -> None:
        heappush(self._timers, (when_s, next(self._made), timer))

    def enqueue(self, handle: asyncio.Handle) -> None:
        self._queue.append(handle)

    def fail(self, failure: BaseException) -> None:
        """Raises it out of the loop before anything else is done."""
        self._failure = self._failure or failure

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        """It goes when its time comes."""

    def _run_once(self) -> None:
        """Until the loop is stopped: one round after the other."""
        queue, timers = self._queue, self._timers
        while not self._stopping and self._failure is None:  # type: ignore[attr-defined]  # BaseEventLoop's
            while timers and timers[0][2]._cancelled:
                heappop(timers)
            if not queue:
                self._leap()
            now_s = self._now_s
            while timers and timers[0][0] <= now_s:
                queue.append(heappop(timers)[2])
            for _ in range(len(queue)):
                handle = queue.popleft()
                if not handle._cancelled:
                    handle._run()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _leap(self) -> None:
        timers = self._timers
        if not timers:
            raise Deadlock(f"nothing is ready and no timer is set at {self._now_s:.6f} s{self._describe_waiting()}")
        if timers[0][0] > self._end_s:
            self._end_s = inf  # what is cancelled now may take its time
            raise LimitReached(f"not done in its virtual time, at {self._now_s:.6f} s{self._describe_waiting()}")
        self._now_s = max(self._now_s, timers[0][0])


def in_world(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """As ``virtual_time``, for a test of simulated processes."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(test(*args, **kwargs), loop_factory=WorldLoop)

    return run


# Handles are made by the hundred thousand, and nothing here has context variables: nobody copies or enters a context.


class _Deed(asyncio.Handle):
    """Something that the world is to do."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def _run(self) -> None:
        try:
            self._callback(*self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as failure:  # noqa: BLE001 – as asyncio does: whoever handles the loop's errors hears of it
            message = f"Exception in callback {self._callback}"
            self._loop.call_exception_handler({"message": message, "exception": failure, "handle": self})


class _WorldTimer(_Deed, asyncio.TimerHandle):
    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: asyncio.AbstractEventLoop
    ) -> None:
        _Deed.__init__(self, callback, args, loop)
        self._when = when
        self._scheduled = False


class _Call(_Deed):
    """Something that a process is to do."""

    __slots__ = ()
    _loop: ProcessLoop

    def _run(self) -> None:
        process = self._loop
        if process.is_paused:
            process.wait_for_resume(self)
        elif process.has_ended:
            process.keep_step(self)
        else:
            events._set_running_loop(process)
            _Deed._run(self)
            events._set_running_loop(process.world)


class _Timer(_WorldTimer, _Call):
    __slots__ = ()
    _loop: ProcessLoop
    _run = _Call._run


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one life of one node. ``rate``: how fast its clock runs, 1.0 being true."""

    def __init__(self, world: WorldLoop, *, rate: float = 1.0) -> None:
        self.world = world
        self._rate = rate
        self.is_paused = False
        self.has_ended = False
        self._is_buried = False
        self._waiting: list[asyncio.Handle] = []
        self._late: list[asyncio.Handle] = []
        self._steps: list[asyncio.Handle] = []
        """Of tasks, which the end came before: without them a task can not even be cancelled."""
        self._asked: dict[asyncio.Future[Any], None] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}

    # What runs in it ---------------------------------------------------------------------------------------------

    def __enter__(self) -> None:
        events._set_running_loop(self)

    def __exit__(self, *_: object) -> None:
        events._set_running_loop(self.world)

    def time(self) -> float:
        return self.world._now_s * self._rate

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        call = _Call(callback, args, self)
        self.world._queue.append(call)
        return call

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self)
        self.world.arm(when / self._rate, timer)
        return timer

    def _timer_handle_cancelled(self, _timer: asyncio.TimerHandle) -> None:
        """It goes when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.has_ended and not self._is_buried:
            self.world.call_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.has_ended

    def is_closed(self) -> bool:
        return False

    # What is done to it ------------------------------------------------------------------------------------------

    def ask(self, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        """Has the process do ``work``; the future, the world's, tells what came of it. ``GoneError`` when the process
        ends before. Who asks may stop listening; the work goes on."""
        answer: asyncio.Future[T] = self.world.create_future()
        answer.add_done_callback(_listen)
        if self.has_ended:
            answer.set_exception(GoneError())
            return answer
        self._asked[answer] = None
        self.call_soon(lambda: self.create_task(self._serve(work, answer), name="served"))
        return answer

    async def _serve(self, work: Callable[[], Awaitable[T]], answer: asyncio.Future[T]) -> None:
        try:
            result = await work()
        except asyncio.CancelledError:
            self._answer(answer, functools.partial(answer.set_exception, GoneError()))
        except BaseException as failure:  # noqa: BLE001 – it is the caller's, while there is one
            if answer.done() and not isinstance(failure, REFUSALS):  # a refusal that nobody waits for is nobody's
                self.call_exception_handler({"message": "asked of a process, which failed", "exception": failure})
            self._answer(answer, functools.partial(answer.set_exception, failure))
        else:
            self._answer(answer, functools.partial(answer.set_result, result))

    def _answer(self, answer: asyncio.Future[T], tell: Callable[[], None]) -> None:
        self._asked.pop(answer, None)
        if not answer.done():
            tell()

    def pause(self) -> None:
        """Nothing of it runs; what would have, waits."""
        self.is_paused = True

    def wait_for_resume(self, handle: asyncio.Handle) -> None:
        (self._late if isinstance(handle, _Timer) else self._waiting).append(handle)

    def resume(self) -> None:
        """What has arrived is taken first, then the timers fire, late: as a loop that comes out of its ``select``."""
        self.is_paused = False
        for handle in (*self._waiting, *self._late):
            self.world.enqueue(handle)
        self._waiting, self._late = [], []

    def end(self) -> None:
        """Nothing of it runs any more, and who waits for an answer hears that it is gone."""
        self.has_ended = True
        for handle in (*self._waiting, *self._late):
            self.keep_step(handle)
        self._waiting, self._late = [], []
        asked, self._asked = self._asked, {}
        for answer in asked:
            if not answer.done():
                answer.set_exception(GoneError())

    def keep_step(self, handle: asyncio.Handle) -> None:
        """``handle`` was to run after the end: where it is a task's, it is kept for the burial."""
        if isinstance(getattr(handle._callback, "__self__", None), asyncio.Task):  # type: ignore[attr-defined]
            self._steps.append(handle)

    async def bury(self) -> None:
        """Long after its end: closes what was running in it, so that nothing complains of being forgotten, or of what
        it finds gone while it is closed."""
        self._is_buried = True
        self.has_ended = self.is_paused = False
        for _ in range(BURIAL_ROUNDS):
            for task in list(self._tasks):
                task.cancel()
            steps, self._steps = self._steps, []
            for handle in steps:
                self.world.enqueue(handle)
            await asyncio.sleep(0.1)
            if not self._tasks:
                break
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if getcoroutinestate(coro := task.get_coro()) == CORO_CREATED:  # type: ignore[arg-type]
                coro.close()
        self.has_ended = True


def _listen(answer: asyncio.Future[Any]) -> None:
    """An error that nobody waits for any more is nobody's."""
    if not answer.cancelled():
        answer.exception()
