"""Work side by side: no more at a time than wished, and a failure waits for what was begun."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dledger.common.batches import in_batches


async def test_so_many_are_done_at_a_time_and_all_in_the_end() -> None:
    running, most, done = 0, 0, list[int]()

    async def work(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        done.append(number)

    await in_batches([partial(work, number) for number in range(10)], 4)
    assert most == 4
    assert done == [*range(10)]


async def test_a_failure_is_raised_when_what_was_begun_has_ended_and_begins_nothing_more() -> None:
    ended = list[int]()

    async def work(number: int) -> None:
        if number == 1:
            raise ValueError("this one")
        await asyncio.sleep(0.01)
        ended.append(number)

    with pytest.raises(ValueError, match="this one"):
        await in_batches([partial(work, number) for number in range(6)], 3)
    assert ended == [0, 2]
