"""Who shares a frame waits for those who will be back at once, and for others not for long."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from dledger.group.leader.append_coalescer import (
    COUNT_EVERY_FRAMES,
    MANY_CALLERS,
    MAX_GATHER_S,
    MAX_WAIT_S,
    MOST,
    PER_CALLER_S,
    TICK_S,
    AppendCoalescer,
)
from tests.support.virtual_time import virtual_time

MANY = 2 * MANY_CALLERS


class Frames:
    """Callers who share frames: how many left with each."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._here = 0
        self.gathering = AppendCoalescer(self._loop, self.leave)
        self.left: list[int] = []
        self._under_way: list[asyncio.Future[None]] = []

    def come(self, callers: int = 1) -> None:
        for _ in range(callers):
            self._here += 1
            if self.gathering.came():
                self.leave()

    def leave(self) -> None:
        self.left.append(self._here)
        self._here = 0
        self._under_way.append(self._loop.create_future())
        self.gathering.left(self._under_way[-1])

    @property
    def is_under_way(self) -> bool:
        return not self._under_way[-1].done()

    async def answer(self) -> None:
        """The frame that was written last."""
        self._under_way[-1].set_result(None)
        await asyncio.sleep(0)


async def with_many_callers() -> Frames:
    """A frame of most of them is answered."""
    frames = Frames()
    frames.come(MANY)
    await frames.answer()
    assert frames.left == [1, MANY - 1]
    await frames.answer()
    return frames


@virtual_time
async def test_who_is_alone_waits_for_nobody() -> None:
    frames = Frames()
    for _ in range(3):
        frames.come()
        await frames.answer()
    assert frames.left == [1, 1, 1]


@virtual_time
async def test_who_comes_while_a_frame_is_under_way_shares_the_next() -> None:
    frames = Frames()
    frames.come(4)
    assert frames.left == [1]
    await frames.answer()
    assert frames.left == [1, 3]


@virtual_time
async def test_without_an_answer_nobody_waits_for_it_long() -> None:
    frames = Frames()
    frames.come(4)
    await asyncio.sleep(MAX_GATHER_S)
    assert frames.left == [1, 3]


@virtual_time
async def test_few_callers_are_not_waited_for() -> None:
    frames = Frames()
    frames.come(MANY_CALLERS - 1)
    await frames.answer()
    frames.come()
    await frames.answer()
    assert frames.left == [1, MANY_CALLERS - 2, 1]


@virtual_time
async def test_of_many_callers_most_are_waited_for() -> None:
    frames = await with_many_callers()
    back = 0
    while len(frames.left) == 2:
        frames.come()
        back += 1
        await asyncio.sleep(0.0001)
    assert MOST * (MANY - 1) <= back < MANY
    assert frames.left[2:] == [back]


@virtual_time
async def test_who_stays_away_is_soon_waited_for_no_more() -> None:
    frames = await with_many_callers()
    waits = 0
    while not frames.gathering.may_go:
        waits += 1
        frames.come()
        await asyncio.sleep(MAX_GATHER_S)
        await frames.answer()
    assert frames.left[2:] == [1] * waits
    assert waits <= 3


@virtual_time
async def test_when_nobody_comes_back_nothing_is_written() -> None:
    frames = await with_many_callers()
    await asyncio.sleep(MAX_GATHER_S)
    assert len(frames.left) == 2
    frames.come()
    assert frames.left[2:] == [1]


@virtual_time
async def test_who_keep_coming_are_waited_for_longer() -> None:
    frames = await with_many_callers()
    began_s = asyncio.get_running_loop().time()
    while len(frames.left) == 2:
        await asyncio.sleep(TICK_S / 2)
        frames.come()
    assert frames.left[2] >= MOST * (MANY - 1)
    assert asyncio.get_running_loop().time() - began_s > MANY * PER_CALLER_S


@virtual_time
async def test_however_many_keep_coming_nobody_waits_for_ever() -> None:
    frames = await of_frames_answered_before_the_next_caller_comes()
    began_s = asyncio.get_running_loop().time()
    left = len(frames.left)
    while len(frames.left) == left:
        await asyncio.sleep(TICK_S / 2)
        frames.come()
    assert MAX_WAIT_S <= asyncio.get_running_loop().time() - began_s <= MAX_WAIT_S + 2 * TICK_S


@virtual_time
async def test_callers_whose_frames_are_answered_before_the_others_come_are_found_out() -> None:
    """They wait, unread, for one another."""
    frames = await of_frames_answered_before_the_next_caller_comes()
    for _ in range(MANY):
        frames.come()
        await asyncio.sleep(TICK_S / 10)
    await asyncio.sleep(2 * TICK_S)
    assert frames.left[-1] == MANY
    await frames.answer()
    frames.come(MANY // 2)
    assert frames.left[-1] == MANY, "most of them are waited for now"


async def of_frames_answered_before_the_next_caller_comes() -> Frames:
    """Several call, and are about to be counted."""
    frames = Frames()
    frames.come(2)
    await frames.answer()
    for _ in range(COUNT_EVERY_FRAMES - 2):
        await frames.answer()
        frames.come()
    assert {*frames.left} == {1}
    await frames.answer()
    return frames


@virtual_time
async def test_who_is_alone_is_never_counted() -> None:
    frames = Frames()
    for _ in range(3 * COUNT_EVERY_FRAMES):
        frames.come()
        await frames.answer()
    assert frames.left == [1] * (3 * COUNT_EVERY_FRAMES)


@virtual_time
async def test_few_are_counted_ever_more_seldom() -> None:
    frames = Frames()
    counted: list[int] = []
    frames.come(2)
    for _ in range(20 * COUNT_EVERY_FRAMES):
        await frames.answer()
        if not frames.gathering.may_go and not frames.is_under_way:
            counted.append(len(frames.left))
            await asyncio.sleep(3 * TICK_S)
        frames.come()
    first, *later = (after - before for before, after in pairwise([0, *counted]))
    assert first == COUNT_EVERY_FRAMES
    assert later == [2 * first, 4 * first, 8 * first]


@virtual_time
async def test_after_the_end_nobody_is_there() -> None:
    frames = Frames()
    frames.come(4)
    frames.gathering.end()
    await asyncio.sleep(MAX_GATHER_S)
    await frames.answer()
    assert frames.left == [1]
    assert frames.gathering.may_go
