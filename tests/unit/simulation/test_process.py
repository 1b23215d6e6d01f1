"""What a simulated process leaves behind at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from dledger.common.errors import NotLeader
from tests.simulation.process import Declined, ProcessLoop, WorldLoop, in_world
from tests.simulation.violation import Violation
from tests.support.virtual_time import run_virtual


@in_world
async def test_a_task_whose_step_came_after_the_end_is_closed_with_what_it_held() -> None:
    process = _process()
    closed = []

    async def numbers() -> AsyncIterator[int]:
        try:
            await asyncio.sleep(1.0)
            yield 1
        finally:
            closed.append(True)

    async def work() -> list[int]:
        return [number async for number in numbers()]

    answer = process.ask(work)
    await asyncio.sleep(1.0)  # the generator's timer is due, and what it wakes has not run
    process.end()
    await asyncio.wait([answer])
    await asyncio.sleep(1.0)
    assert not closed
    await process.bury()
    assert closed


History = Callable[[Callable[[], BaseException]], Coroutine[Any, Any, None]]
"""Of a process in which something fails."""


class Broken(Exception):
    """No refusal of the product's."""


def test_an_untyped_failure_after_its_asker_has_left_is_told() -> None:
    with pytest.RaisesGroup(Broken):
        run_virtual(leave_before(Broken), loop_factory=WorldLoop)


@pytest.mark.parametrize("refusal", [partial(NotLeader, "n1 leads"), Declined])
def test_a_refusal_after_its_asker_has_left_is_nobodys(refusal: Callable[[], Exception]) -> None:
    run_virtual(leave_before(refusal), loop_factory=WorldLoop)


async def leave_before(failure: Callable[[], BaseException]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_process().ask(partial(_fail, failure)), 0.5)
    await asyncio.sleep(1.0)


async def leave_as_it_fails(failure: Callable[[], BaseException]) -> None:
    asked = _process().ask(partial(_fail, failure))

    async def listen() -> None:
        await asked

    asker = asyncio.create_task(listen())
    asked.add_done_callback(lambda _: asker.cancel())  # before it hears what came of it
    with suppress(asyncio.CancelledError):
        await asker


async def fail_and_pass(failure: Callable[[], BaseException]) -> None:
    """Whoever hears of it takes it for nothing."""
    with suppress(BaseException):
        await _process().ask(partial(_fail, failure))


async def end_as_it_fails(failure: Callable[[], BaseException]) -> None:
    """The process ends in the step of a task of its own that fails."""
    process = _process()

    async def last_step() -> None:
        await asyncio.sleep(1.0)
        process.end()
        raise failure()

    with process:
        process.create_task(last_step())
    await asyncio.sleep(2.0)


async def fail_as_the_world_ends(failure: Callable[[], BaseException]) -> None:
    process = _process()
    with process:
        process.call_later(1.0, failure)
    await asyncio.sleep(1.0)


@pytest.mark.parametrize(
    "history", [leave_before, leave_as_it_fails, fail_and_pass, end_as_it_fails, fail_as_the_world_ends]
)
def test_a_violation_ends_the_world_whoever_hears_of_it(history: History) -> None:
    with pytest.raises(Violation, match="a promise"):
        run_virtual(history(partial(Violation, "a promise", "is broken")), loop_factory=WorldLoop)


async def _fail(failure: Callable[[], BaseException]) -> None:
    await asyncio.sleep(1.0)
    raise failure()


def _process() -> ProcessLoop:
    world = asyncio.get_running_loop()
    assert isinstance(world, WorldLoop)
    return ProcessLoop(world)  # type: ignore[abstract]  # the rest nobody calls
