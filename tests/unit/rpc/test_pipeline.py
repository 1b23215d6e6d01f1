"""Answers in the order of requests, with as many under way as are allowed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from dledger.common.errors import Code, DLedgerError, error
from dledger.rpc.server.pipeline import BEGUN_A_TURN, MAX_READY_BYTES, answers_in_order
from tests.support.virtual_time import settle, virtual_time


async def requests_of(*requests: int) -> AsyncIterator[int]:
    for request in requests:
        yield request


class Work:
    """Requests begun, each done when the test says so."""

    def __init__(self) -> None:
        self.begun: dict[int, asyncio.Future[int]] = {}
        self.refused: set[int] = set()

    def begin(self, request: int) -> asyncio.Future[int]:
        if request in self.refused:
            raise error(Code.LEADER_PENDING_FULL, f"request {request}")
        self.begun[request] = asyncio.get_running_loop().create_future()
        return self.begun[request]


async def collect(answers: AsyncIterator[int], into: list[int]) -> None:
    async for answer in answers:
        into.append(answer)  # noqa: PERF401 – what came before a failure counts


@virtual_time
async def test_answers_come_in_the_order_of_requests_however_the_work_ends() -> None:
    work, answered = Work(), list[int]()
    collecting = asyncio.create_task(collect(answers_in_order(requests_of(1, 2, 3), work.begin, 10), answered))
    await settle()
    work.begun[3].set_result(30)
    work.begun[2].set_result(20)
    await settle()
    assert answered == []
    work.begun[1].set_result(10)
    await collecting
    assert answered == [10, 20, 30]


@virtual_time
async def test_no_more_requests_are_begun_than_may_be_in_flight() -> None:
    work, answered = Work(), list[int]()
    collecting = asyncio.create_task(collect(answers_in_order(requests_of(*range(5)), work.begin, 2), answered))
    await settle()
    assert sorted(work.begun) == [0, 1]
    work.begun[0].set_result(0)
    await settle()
    assert sorted(work.begun) == [0, 1, 2]
    collecting.cancel()


@virtual_time
async def test_a_refused_request_ends_the_stream_behind_the_answers_before_it() -> None:
    work, answered = Work(), list[int]()
    work.refused = {2}
    collecting = asyncio.create_task(collect(answers_in_order(requests_of(1, 2, 3), work.begin, 10), answered))
    await settle()
    work.begun[1].set_result(10)
    with pytest.raises(DLedgerError, match="request 2"):
        await collecting
    assert answered == [10]


@virtual_time
async def test_work_that_fails_ends_the_stream_and_abandons_what_is_behind_it_quietly() -> None:
    """A failure that nobody picks up is reported when it is collected: a stream of many must not leave one each."""
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    work, answered = Work(), list[int]()
    work.refused = {5}
    collecting = asyncio.create_task(collect(answers_in_order(requests_of(*range(6)), work.begin, 10), answered))
    await settle()
    for request in (1, 2):
        work.begun[request].set_exception(error(Code.TERM_CHANGED, f"request {request}"))
    work.begun[0].set_exception(error(Code.TERM_CHANGED, "request 0"))
    with pytest.raises(DLedgerError, match="request 0"):
        await collecting
    assert work.begun[3].cancelled()
    assert work.begun[4].cancelled()
    del work, collecting
    gc.collect()
    assert reported == []


@virtual_time
async def test_a_read_under_way_when_the_stream_ends_is_not_cancelled_and_what_it_brings_is_dropped() -> None:
    """gRPC never frees the message that a cancelled read was to bring."""
    work, brought = Work(), asyncio.get_running_loop().create_future()
    work.refused = {1}

    async def requests() -> AsyncIterator[int]:
        yield 0
        yield await brought

    collecting = asyncio.create_task(collect(answers_in_order(requests(), work.begin, 10), []))
    await settle()
    work.begun[0].set_exception(error(Code.TERM_CHANGED, "request 0"))
    with pytest.raises(DLedgerError, match="request 0"):
        await collecting
    assert not brought.done()
    brought.set_result(1)
    await settle()
    assert list(work.begun) == [0]


@virtual_time
async def test_a_request_that_waits_for_room_when_the_stream_ends_is_not_begun() -> None:
    work = Work()
    collecting = asyncio.create_task(collect(answers_in_order(requests_of(0, 1), work.begin, 1), []))
    await settle()
    work.begun[0].set_exception(error(Code.TERM_CHANGED, "request 0"))
    with pytest.raises(DLedgerError, match="request 0"):
        await collecting
    await settle()
    assert list(work.begun) == [0]
    assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_a_caller_that_goes_away_abandons_its_requests() -> None:
    work = Work()
    answers = answers_in_order(requests_of(1, 2), work.begin, 10)
    answered: list[int] = []
    first = asyncio.create_task(collect(answers, answered))
    await settle()
    first.cancel()
    await asyncio.wait([first])
    await settle()
    assert all(future.cancelled() for future in work.begun.values())


@virtual_time
async def test_no_more_is_begun_while_the_answers_that_nobody_takes_are_large() -> None:
    begun: list[int] = []

    async def make(request: int) -> bytes:
        begun.append(request)
        return bytes(MAX_READY_BYTES // 4)

    def begin(request: int) -> asyncio.Future[bytes]:
        return asyncio.get_running_loop().create_task(make(request))

    answers = answers_in_order(requests_of(*range(100)), begin, 64, len)
    taken = [await anext(answers)]
    await settle()
    assert len(begun) <= 2 * BEGUN_A_TURN
    taken += [each async for each in answers]
    assert len(taken) == 100
