"""Asyncio under virtual time: hours of timers in milliseconds, and the same order of events in every run.

The loop never waits. When nothing is ready, the clock leaps to the next timer; when no timer is left either, nobody can
ever wake up again, and ``Deadlock`` names the tasks that hang and where. ``loop.time()`` starts at ``START_S``.

    @virtual_time
    async def test_an_hour_passes_at_once() -> None:
        await asyncio.sleep(3600)

Fixtures that such a test asks for are made before its loop runs: they cannot be ``async``.

Threads are for tests of adapters only: while ``run_in_executor`` has work under way, time stands still and the loop
really waits for it. Sockets are not for virtual time: the clock leaps without waiting for the kernel.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from math import inf
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_S = 1_000.0
"""What the clock shows when a loop is made: not 0, so that "never" and "at the start" cannot be confused."""

LIMIT_S = 3_600.0
"""How much virtual time ``run_virtual`` grants by default."""


class Deadlock(AssertionError):
    """Nothing is ready and nothing is scheduled: every task waits for something that cannot happen any more."""


class LimitReached(AssertionError):
    """The coroutine did not end within its virtual time."""


class _VirtualSelector(selectors.SelectSelector):
    """Asks the kernel without waiting, and leaps over the wait by moving the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = START_S
        self.end_s = inf
        self.work_in_threads = 0
        self.describe_waiting: Callable[[], str] = lambda: ""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if self.work_in_threads and timeout != 0 else 0)
        if ready:
            return ready
        if timeout is None:
            raise Deadlock(f"nothing is ready and no timer is set at {self.now_s:.6f} s{self.describe_waiting()}")
        if self.now_s + timeout > self.end_s:
            self.end_s = inf  # what is cancelled now may take its time
            raise LimitReached(f"not done in its virtual time, at {self.now_s:.6f} s{self.describe_waiting()}")
        self.now_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves only when nothing else can."""

    def __init__(self) -> None:
        self._virtual_selector = _VirtualSelector()
        super().__init__(self._virtual_selector)
        self._virtual_selector.describe_waiting = self._describe_waiting

    def set_limit(self, limit_s: float) -> None:
        """Raises ``LimitReached`` out of the loop when the clock would pass ``limit_s`` seconds from now."""
        self._virtual_selector.end_s = self.time() + limit_s

    def time(self) -> float:
        return self._virtual_selector.now_s

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._virtual_selector.work_in_threads += 1
        future.add_done_callback(self._thread_done)
        return future

    async def shutdown_default_executor(self, *timeout_s: float | None) -> None:
        """Python 3.12 gave it a timeout."""
        self._virtual_selector.work_in_threads += 1
        await super().shutdown_default_executor(*timeout_s)
        self._virtual_selector.work_in_threads -= 1

    def _thread_done(self, _future: asyncio.Future[Any]) -> None:
        self._virtual_selector.work_in_threads -= 1

    def _describe_waiting(self) -> str:
        return "".join(sorted(f"\n  {_where(task)}" for task in asyncio.all_tasks(self)))


def _where(task: asyncio.Task[Any]) -> str:
    """The task's name and the awaits that it hangs in, outermost first."""
    awaited: Any = task.get_coro()
    places = []
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})")
        awaited = awaited.cr_await
    return f"{task.get_name()} waits in {' > '.join(places)}"


def run_virtual(
    coro: Coroutine[Any, Any, T],
    *,
    limit_s: float = LIMIT_S,
    loop_factory: Callable[[], VirtualTimeLoop] = VirtualTimeLoop,
) -> T:
    """Runs ``coro`` to its end on a fresh loop, cancels what it left behind, and gives back its result.

    Raises ``Deadlock``, ``LimitReached`` after ``limit_s`` virtual seconds, what ``coro`` raises, and, as a group, the
    errors of tasks and callbacks in the background that nobody picked up.
    """
    lost: list[BaseException] = []

    def keep(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        lost.append(context.get("exception") or AssertionError(context["message"]))

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.set_exception_handler(keep)
        loop.set_limit(limit_s)
        result = runner.run(coro)
    if lost:
        raise BaseExceptionGroup("errors that nobody picked up", lost)
    return result


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Makes an ``async def`` test (or property) an ordinary one that runs under virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(test(*args, **kwargs))

    return run


async def settle() -> None:
    """Lets everything that is ready now run, and what that makes ready, until only timers are left."""
    await asyncio.sleep(1e-6)
