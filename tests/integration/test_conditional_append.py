"""Compare-and-append by several clients at once, with kill -9 of the leader in the middle: each index is won once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio

from dledger import Log, OutcomeUnknown, WrongExpectedIndex, connect
from dledger.v1 import log_pb2
from tests.integration.conftest import Tell
from tests.integration.nodes import Nodes, refusal_of, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOPS = 5
RECORDS = 300
KILL_AT, REVIVE_AT = 100, 200
MOST_THOUGHT_S = 0.01
"""After a success, so that not always the same one is first."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with running(tmp_path_factory.mktemp("conditional")) as started:
        yield started


class Contest:
    """Loops that each append at what they take for the end of the log, until there are enough records."""

    def __init__(self) -> None:
        self.won: dict[int, bytes] = {}
        self.unknown: set[bytes] = set()
        self.refused: set[bytes] = set()
        self._reached = asyncio.Condition()
        self._rng = random.Random(5)

    async def reached(self, index: int) -> None:
        async with self._reached:
            await self._reached.wait_for(lambda: max(self.won, default=-1) >= index)

    async def compete(self, log: Log, who: int) -> None:
        next_index, attempt = 0, 0
        while next_index < RECORDS:
            record = b"%d/%d" % (who, attempt)
            attempt += 1
            try:
                index = (await log.append(record, expect_index=next_index)).index
            except WrongExpectedIndex as refusal:
                self.refused.add(record)
                next_index = refusal.next_index
            except OutcomeUnknown:
                self.unknown.add(record)
            else:
                assert index == next_index
                assert index not in self.won
                self.won[index] = record
                next_index = index + 1
                await asyncio.sleep(self._rng.uniform(0, MOST_THOUGHT_S))
                async with self._reached:
                    self._reached.notify_all()


async def test_each_index_is_won_once_though_the_leader_is_killed(nodes: Nodes, tell: Tell) -> None:
    contest = Contest()

    async def compete(who: int) -> None:
        async with connect(nodes.cluster.endpoints) as log:
            await contest.compete(log, who)

    async with asyncio.TaskGroup() as tasks:
        for who in range(LOOPS):
            tasks.create_task(compete(who))
        await contest.reached(KILL_AT)
        killed = await nodes.leader()
        await nodes.cluster.kill(killed)
        await contest.reached(REVIVE_AT)
        await nodes.restart(killed)
    await nodes.settled()
    async with connect(nodes.cluster.endpoints) as log:
        records = [entry.value async for entry in log.read()]
    assert len(records) == len(set(records))
    assert not contest.refused.intersection(records)
    for index, record in enumerate(records):
        assert contest.won.get(index, record) == record
        assert index in contest.won or record in contest.unknown
    winners = len({record.partition(b"/")[0] for record in records})
    tell(f"{len(records)} records of {winners} loops, {len(contest.refused)} refused, {len(contest.unknown)} unknown")


async def test_a_refusal_over_plain_grpc_tells_the_next_index(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    base_index = (await leader.append(b"here")).base_index
    refusal = await refusal_of(leader.append(b"x", expect_index=base_index))
    assert (refusal.status, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_EXPECTED_INDEX")
    assert refusal.metadata == {"next_index": str(base_index + 1)}
    assert (await leader.append(b"x", expect_index=base_index + 1)).base_index == base_index + 1


async def test_a_retry_over_plain_grpc_gets_its_first_answer(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    next_index = (await leader.append(b"here")).base_index + 1
    producer = (await leader.log.InitProducer(log_pb2.InitProducerRequest())).producer_id
    first = await leader.append(b"x", producer_id=producer, expect_index=next_index)
    await leader.append(b"later")
    assert await leader.append(b"x", producer_id=producer, expect_index=next_index) == first
