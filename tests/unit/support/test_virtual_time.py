from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.virtual_time import START_S, Deadlock, LimitReached, run_virtual, settle, virtual_time


@virtual_time
async def test_a_day_passes_at_once() -> None:
    began = time.monotonic()
    loop = asyncio.get_running_loop()
    await asyncio.sleep(3_000)
    assert loop.time() == pytest.approx(START_S + 3_000)
    assert time.monotonic() - began < 5


@virtual_time
async def test_timers_fire_in_order_of_time_and_the_clock_shows_each() -> None:
    loop = asyncio.get_running_loop()
    seen: list[tuple[str, float]] = []

    async def after(delay_s: float, name: str) -> None:
        await asyncio.sleep(delay_s)
        seen.append((name, round(loop.time() - START_S, 6)))

    await asyncio.gather(after(30, "c"), after(10, "a"), after(20, "b"))
    assert seen == [("a", 10), ("b", 20), ("c", 30)]


@virtual_time
async def test_what_is_ready_runs_before_the_clock_moves() -> None:
    loop = asyncio.get_running_loop()
    turns: list[float] = []

    async def spin() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
            turns.append(loop.time())

    spinning = asyncio.create_task(spin())
    await asyncio.sleep(1)
    await spinning
    assert turns == [START_S] * 100


@virtual_time
async def test_a_timeout_expires_in_virtual_time() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await asyncio.sleep(601)


@virtual_time
async def test_settle_runs_what_is_ready_and_leaves_timers_alone() -> None:
    seen: list[str] = []
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: loop.call_soon(seen.append, "ready"))
    loop.call_later(0.001, seen.append, "timer")
    await settle()
    assert seen == ["ready"]


def test_a_deadlock_names_the_tasks_and_where_they_wait() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(wait_for_nobody(), name="left alone")

    with pytest.raises(Deadlock, match=r"left alone waits in .*wait_for_nobody \(.*\) > Event\.wait \(locks\.py:\d+\)"):
        run_virtual(main())


def test_endless_timers_end_at_the_limit() -> None:
    async def heartbeat() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0.1)

    with pytest.raises(LimitReached, match="heartbeat"):
        run_virtual(heartbeat(), limit_s=10)


def test_an_error_in_the_background_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await settle()

    with pytest.raises(BaseExceptionGroup) as caught:
        run_virtual(main())
    assert caught.group_contains(ZeroDivisionError)


def test_what_was_left_running_is_cancelled() -> None:
    ended: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("cancelled")

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(linger())
        await settle()
        return task

    assert run_virtual(main()).cancelled()
    assert ended == ["cancelled"]


@virtual_time
async def test_time_stands_still_while_a_thread_works() -> None:
    loop = asyncio.get_running_loop()
    release = threading.Event()
    timer_fired = asyncio.Event()
    loop.call_later(1, timer_fired.set)
    work = loop.run_in_executor(None, release.wait, 10)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not timer_fired.is_set()
    release.set()
    assert await work
    assert loop.time() == START_S


@given(st.lists(st.integers(0, 50), max_size=20))
def test_the_same_timers_give_the_same_run(delays_ms: list[int]) -> None:
    async def run() -> list[tuple[int, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[int, float]] = []

        def fired(number: int) -> None:
            seen.append((number, loop.time()))

        for number, delay_ms in enumerate(delays_ms):
            loop.call_later(delay_ms / 1000, fired, number)
        await asyncio.sleep(1)
        return seen

    assert run_virtual(run()) == run_virtual(run())
