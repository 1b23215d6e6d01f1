"""Leaders that die, stop and freeze under load; clusters that die as a whole. Nothing acknowledged is ever lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from dledger.common.types import Durability
from dledger.v1 import log_pb2
from tests.integration.conftest import Tell
from tests.integration.load import Load
from tests.integration.nodes import Nodes, eventually, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

KILLS = 3
MOST_GAP_S = 1.5
"""What is promised after kill -9 of the leader, at the default timings."""
HANDOVER_GAP_S = 0.25
STOP_S = 5.0
FREEZE_S = 3.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with running(tmp_path_factory.mktemp("failover")) as started:
        yield started


@asynccontextmanager
async def under_load(nodes: Nodes) -> AsyncIterator[Load]:
    """What the client was told meanwhile is what every node's log holds in the end: nothing more, less or twice."""
    load = Load(nodes.cluster.endpoints)
    async with load:
        yield load
    await nodes.settled()
    await load.check(*nodes.ids)


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_kill_9_of_the_leader_is_a_short_delay_and_no_error(nodes: Nodes, tell: Tell) -> None:
    gaps_s = []
    async with under_load(nodes) as load:
        for _ in range(KILLS):
            leader = await nodes.leader()
            await load.next_ack()
            killed_s = now_s()
            await nodes.cluster.kill(leader)
            await load.next_ack()
            gaps_s.append(load.longest_gap_s(killed_s))
            assert await nodes.leader() != leader
            await nodes.restart(leader)
    tell(f"kill -9 of the leader: gaps of {[round(gap_s * 1000) for gap_s in gaps_s]} ms")
    assert max(gaps_s) <= MOST_GAP_S


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_stopped_leader_hands_over(nodes: Nodes, tell: Tell, number: signal.Signals) -> None:
    leader = await nodes.leader()
    term = (await nodes[leader].status()).term
    async with under_load(nodes) as load:
        stopped_s = now_s()
        assert await nodes.terminate(leader, number=number) == [0]
        took_s = now_s() - stopped_s
        await load.next_ack()
        gap_s = load.longest_gap_s(stopped_s)
        new = await nodes.leader()
        assert (await nodes[new].status()).term == term + 1
        await nodes.restart(leader)
        assert await nodes.leader() == new
    tell(f"{number.name} of the leader: it took {took_s * 1000:.0f} ms, the gap was {gap_s * 1000:.0f} ms")
    assert took_s < STOP_S
    assert gap_s < HANDOVER_GAP_S


async def test_a_follower_that_dies_or_stops_and_comes_back_changes_neither_leader_nor_term(nodes: Nodes) -> None:
    leader = await nodes.leader()
    killed, stopped = await nodes.followers()
    term = (await nodes[leader].status()).term
    async with under_load(nodes) as load:
        await nodes.cluster.kill(killed)
        await load.next_ack()
        await nodes.restart(killed)
        assert await nodes.terminate(stopped) == [0]
        await load.next_ack()
        await nodes.restart(stopped)
    statuses = await nodes.statuses()
    assert {(status.leader_id, status.term) for status in statuses} == {(leader, term)}


async def test_a_follower_that_comes_back_while_nothing_is_appended_serves_all_that_is_committed(nodes: Nodes) -> None:
    leader = await nodes.leader()
    follower = (await nodes.followers())[0]
    for number in range(10):
        ack = await nodes[leader].append(b"%d" % number)
    await nodes.cluster.kill(follower)
    await nodes.restart(follower)
    assert (await nodes.settled())[0] == ack.base_index
    response = await nodes[follower].get(ack.base_index, consistency=log_pb2.CONSISTENCY_COMMITTED)
    assert (response.entry.value, response.commit_index) == (b"9", ack.base_index)
    assert await nodes.leader() == leader


async def test_a_frozen_leader_is_replaced_and_follows_when_it_thaws(nodes: Nodes, tell: Tell) -> None:
    leader = await nodes.leader()
    async with under_load(nodes) as load:
        frozen_s = now_s()
        nodes.signal(leader, signal.SIGSTOP)
        await load.next_ack()
        gap_s = load.longest_gap_s(frozen_s)
        await asyncio.sleep(FREEZE_S - (now_s() - frozen_s))
        nodes.signal(leader, signal.SIGCONT)
        assert await nodes.leader() != leader
    tell(f"SIGSTOP of the leader: the gap was {gap_s * 1000:.0f} ms")
    assert gap_s < FREEZE_S


async def test_a_second_sigterm_ends_a_node_that_waits_for_its_quorum_at_once(nodes: Nodes) -> None:
    leader = await nodes.leader()
    followers = await nodes.followers()
    for follower in followers:
        nodes.signal(follower, signal.SIGSTOP)
    waits = asyncio.create_task(nodes[leader].append(b"no quorum"))

    async def is_written() -> bool:
        status = await nodes[leader].status()
        return status.last_index > status.commit_index

    await eventually(is_written, "the append is written")
    process = nodes.cluster.nodes[leader].process
    assert process is not None
    nodes.cluster.nodes[leader].expected_to_end = True
    process.terminate()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(process.wait()), 0.3)
    again_s = now_s()
    process.terminate()
    assert await process.wait() == 128 + signal.SIGTERM
    assert now_s() - again_s < STOP_S / 2, "it did not wait for the drain to give up"
    await asyncio.wait([waits])
    assert waits.exception() is not None
    for follower in followers:
        nodes.signal(follower, signal.SIGCONT)
    await nodes.restart(leader)


async def test_all_nodes_stopped_at_once_end_cleanly(nodes: Nodes, tell: Tell) -> None:
    last_index, *_ = await nodes.settled()
    stopped_s = now_s()
    assert await nodes.terminate(*nodes.ids) == [0, 0, 0]
    took_s = now_s() - stopped_s
    tell(f"SIGTERM of all three at once: they took {took_s * 1000:.0f} ms")
    assert took_s < STOP_S
    await nodes.restart(*nodes.ids)
    assert (await nodes.settled())[0] == last_index


async def test_clusters_killed_as_a_whole_have_everything_they_acknowledged(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        for durability in Durability:
            group.create_task(_killed_as_a_whole(tmp_path / durability.value, durability), name=durability.value)


async def _killed_as_a_whole(data: Path, durability: Durability) -> None:
    """The death of processes alone loses nothing, also where the disk was not waited for."""
    async with running(data, durability=durability) as nodes, under_load(nodes) as load:
        while len(load.acks) < 200:
            await load.next_ack()
        nodes.cluster.kill_all()
        for node in nodes.cluster.nodes.values():
            assert node.process is not None
            await node.process.wait()
        await nodes.restart(*nodes.ids)
        await load.next_ack()
