"""One timer for many groups."""

from __future__ import annotations

import asyncio

import pytest

from dledger.group.upkeep import Upkeep
from tests.support.virtual_time import virtual_time


@virtual_time
async def test_all_are_called_at_once_and_then_at_every_multiple_of_the_interval() -> None:
    loop = asyncio.get_running_loop()
    upkeep, calls = Upkeep(125), list[tuple[str, float]]()
    await asyncio.sleep(0.03)
    begun_s = loop.time()
    for name in "ab":
        upkeep.add(lambda name=name: calls.append((name, loop.time())))  # type: ignore[misc]
    assert [(name, at) for name, at in calls] == [("a", begun_s), ("b", begun_s)]
    calls.clear()
    await asyncio.sleep(1)
    assert [name for name, _ in calls] == ["a", "b"] * 8
    first_s = (begun_s // 0.125 + 1) * 0.125
    assert sorted({at for _, at in calls}) == pytest.approx([first_s + turn * 0.125 for turn in range(8)])


@virtual_time
async def test_what_was_removed_is_not_called_and_nothing_wakes_the_loop_for_nobody() -> None:
    upkeep, calls = Upkeep(125), list[str]()

    def once() -> None:
        calls.append("once")
        upkeep.remove(once)

    upkeep.add(once)
    upkeep.remove(once)
    assert upkeep._timer is None
    await asyncio.sleep(1)
    assert calls == ["once"]
    upkeep.add(once)
    assert calls == ["once", "once"]
