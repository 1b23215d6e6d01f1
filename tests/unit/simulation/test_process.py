"""What a simulated process leaves behind at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

import pytest

from dledger.errors import NotLeader
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


class Broken(Exception):
    """No refusal of the product's."""


def test_a_violation_after_its_asker_has_left_ends_the_world() -> None:
    with pytest.raises(Violation, match="a promise"):
        run_virtual(leave_before(Violation("a promise", "is broken")), loop_factory=WorldLoop)


def test_an_untyped_failure_after_its_asker_has_left_is_told() -> None:
    with pytest.RaisesGroup(Broken):
        run_virtual(leave_before(Broken()), loop_factory=WorldLoop)


def test_a_violation_at_the_instant_when_its_asker_leaves_ends_the_world() -> None:
    with pytest.raises(Violation, match="a promise"):
        run_virtual(leave_as_it_fails(Violation("a promise", "is broken")), loop_factory=WorldLoop)


@pytest.mark.parametrize("refusal", [NotLeader("n1 leads"), Declined()])
def test_a_refusal_after_its_asker_has_left_is_nobodys(refusal: Exception) -> None:
    run_virtual(leave_before(refusal), loop_factory=WorldLoop)


async def leave_before(failure: BaseException) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_process().ask(partial(_fail, failure)), 0.5)
    await asyncio.sleep(1.0)


async def leave_as_it_fails(failure: BaseException) -> None:
    asked = _process().ask(partial(_fail, failure))

    async def listen() -> None:
        await asked

    asker = asyncio.create_task(listen())
    asked.add_done_callback(lambda _: asker.cancel())  # before it hears what came of it
    with suppress(asyncio.CancelledError):
        await asker


async def _fail(failure: BaseException) -> None:
    await asyncio.sleep(1.0)
    raise failure


def _process() -> ProcessLoop:
    world = asyncio.get_running_loop()
    assert isinstance(world, WorldLoop)
    return ProcessLoop(world)  # type: ignore[abstract]  # the rest nobody calls
