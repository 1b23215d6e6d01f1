"""What a simulated process leaves behind at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.simulation.process import ProcessLoop, WorldLoop, in_world


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
