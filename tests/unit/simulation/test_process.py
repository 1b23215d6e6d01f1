"""What a simulated process leaves behind at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dledger.errors import NotLeader
from tests.simulation.process import ProcessLoop, WorldLoop, in_world
from tests.simulation.violation import Violation
from tests.support.virtual_time import run_virtual


@in_world
async def test_a_task_whose_step_came_after_the_end_is_closed_with_what_it_held() -> None:
    world = asyncio.get_running_loop()
    assert isinstance(world, WorldLoop)
    process = ProcessLoop(world)  # type: ignore[abstract]  # the rest nobody calls
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


class Broken(Exception):
    """No refusal of the product's."""


def test_a_violation_after_its_asker_has_left_ends_the_world() -> None:
    with pytest.raises(Violation, match="a promise"):
        run_virtual(leave_before(Violation("a promise", "is broken")), loop_factory=WorldLoop)


def test_an_untyped_failure_after_its_asker_has_left_is_told() -> None:
    with pytest.RaisesGroup(Broken):
        run_virtual(leave_before(Broken()), loop_factory=WorldLoop)


def test_a_refusal_after_its_asker_has_left_is_nobodys() -> None:
    run_virtual(leave_before(NotLeader("n1 leads")), loop_factory=WorldLoop)


async def leave_before(failure: BaseException) -> None:
    world = asyncio.get_running_loop()
    assert isinstance(world, WorldLoop)
    process = ProcessLoop(world)  # type: ignore[abstract]  # the rest nobody calls

    async def fail_late() -> None:
        await asyncio.sleep(1.0)
        raise failure

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.ask(fail_late), 0.5)
    await asyncio.sleep(1.0)
