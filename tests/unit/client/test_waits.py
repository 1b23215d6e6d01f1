"""What a program is told while its calls wait: the reason, and not too often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dledger import client
from dledger.client.append_queue import TICK_S
from dledger.client.waits import TELL_INTERVAL_S, Waits
from dledger.common.errors import Code, DLedgerError, NotLeader, error
from dledger.common.types import Consistency
from tests.unit.client.fake_server import FakeCluster

Leap = Callable[[float], None]
Call = Callable[[client.Log], Awaitable[object]]


class Told:
    """The reasons that were told. ``came`` is set by each."""

    def __init__(self) -> None:
        self.reasons: list[DLedgerError] = []
        self.came = asyncio.Event()

    def __call__(self, reason: DLedgerError) -> None:
        self.reasons.append(reason)
        self.came.set()


@pytest.fixture
async def told() -> Told:
    return Told()


@pytest.fixture
async def log(cluster: FakeCluster, told: Told) -> AsyncIterator[client.Log]:
    async with client.connect(cluster.endpoints, timeout_ms=60_000, on_wait=told) as log:
        yield log


async def through_a_name(log: client.Log) -> None:
    async with log.producer("job", epoch=1) as producer:
        await producer.append(b"x")


async def read_all(log: client.Log) -> None:
    async for _ in log.read():
        pass


CALLS: dict[str, Call] = {
    "append": lambda log: log.append(b"x"),
    "conditional append": lambda log: log.append(b"x", expect_index=0),
    "named producer": through_a_name,
    "get": lambda log: log.get(0),
    "read": read_all,
    "bounds": lambda log: log.bounds(),
    "admin": lambda log: log.admin.promote("n1"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_every_call_that_waits_tells_what_for(
    cluster: FakeCluster, log: client.Log, told: Told, name: str
) -> None:
    cluster.lead(None)
    call = asyncio.ensure_future(CALLS[name](log))
    await told.came.wait()
    assert told.reasons[0].code is Code.LEADER_NOT_READY
    if name == "get":
        await cluster.fill([b"x"])
    cluster.lead(cluster.nodes[1])
    await call


async def test_an_append_without_any_answer_is_told_of_after_a_second(
    cluster: FakeCluster, log: client.Log, told: Told, leap: Leap
) -> None:
    await log.append(b"0")
    cluster.faults.hold = asyncio.Event()
    append = asyncio.ensure_future(log.append(b"1"))
    await asyncio.sleep(2 * TICK_S)
    assert not told.reasons
    leap(TELL_INTERVAL_S)
    await told.came.wait()
    assert [str(reason) for reason in told.reasons] == ["what was sent is not acknowledged yet"]
    cluster.faults.hold.set()
    assert (await append).index == 1


async def test_an_append_for_which_no_leader_answers_is_told_of(
    cluster: FakeCluster, log: client.Log, told: Told, leap: Leap
) -> None:
    cluster.faults.silent = frozenset({"GetMetadata"})
    append = asyncio.ensure_future(log.append(b"0"))
    await cluster.heard("GetMetadata")
    leap(TELL_INTERVAL_S)
    await told.came.wait()
    assert str(told.reasons[0]) == "no leader has answered yet"
    append.cancel()


async def test_nothing_is_told_of_calls_that_do_not_wait(cluster: FakeCluster, log: client.Log, told: Told) -> None:
    await log.append(b"0")
    cluster.lead(cluster.nodes[1])  # the old leader names the new one
    await log.append(b"1")
    await log.get(1)
    assert [reason for reason in told.reasons if isinstance(reason, NotLeader)] == []


async def test_the_end_of_a_stream_that_nobody_waits_for_is_not_told(
    cluster: FakeCluster, log: client.Log, told: Told
) -> None:
    await through_a_name(log)
    await log.append(b"0")
    await cluster.nodes[0].stop()
    cluster.lead(cluster.nodes[1])
    await log.get(0, Consistency.COMMITTED, node="n1")
    assert not told.reasons


async def test_a_reason_is_told_once_a_second_at_most(leap: Leap) -> None:
    told: list[DLedgerError] = []
    waits = Waits(told.append)
    for _ in range(3):
        waits.tell(error(Code.LEADER_NOT_READY, "an election"))
    assert len(told) == 1
    leap(TELL_INTERVAL_S)
    waits.tell(error(Code.LEADER_NOT_READY, "an election"))
    assert len(told) == 2


async def test_a_refusal_that_names_the_leader_is_not_waited_for() -> None:
    told: list[DLedgerError] = []
    waits = Waits(told.append)
    waits.refused(error(Code.NOT_LEADER, "ask n1", leader_id="n1", leader_address="h:1"))
    waits.refused(error(Code.NOT_LEADER, "nobody leads"))
    assert [str(reason) for reason in told] == ["nobody leads"]


async def test_a_failure_of_the_programs_function_is_logged_and_holds_up_nothing(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    failed = asyncio.Event()

    def on_wait(_: DLedgerError) -> None:
        failed.set()
        raise ZeroDivisionError

    cluster.lead(None)
    async with client.connect(cluster.endpoints, on_wait=on_wait) as log:
        append = asyncio.ensure_future(log.append(b"x"))
        await failed.wait()
        cluster.lead(cluster.nodes[0])
        assert (await append).index == 0
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "on_wait failed, it was told: no leader is known" in record.getMessage()
