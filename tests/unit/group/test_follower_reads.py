"""Reads of what a node knows to be committed, on any node; and linearizable ones that a lease answers."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.errors import NotLeader
from dledger.common.types import Consistency, Role
from tests.support.cluster import SimCluster, SimNode, address_of
from tests.support.virtual_time import settle, virtual_time


async def follow(node: SimNode, start: int, count: int) -> list[int]:
    """The base indexes of the first ``count`` frames from ``start`` on."""
    reader = node.replica.reader
    seen: list[int] = []
    point = await reader.read_point(Consistency.COMMITTED)
    async for frames, _ in reader.read(start, None, point, follow=True):
        seen += [frame.header.base_index for frame in frames]
        if len(seen) >= count:
            break
    return seen


# Followers and learners ----------------------------------------------------------------------------------------------


async def with_learner(cluster: SimCluster) -> tuple[SimNode, SimNode]:
    leader = await cluster.leader()
    learner = await cluster.join(3)
    await leader.replica.members.add(learner.id, address_of(learner.id))
    await cluster.until(lambda: learner.replica.role is Role.LEARNER and learner.log.last == leader.log.last)
    return leader, learner


@virtual_time
async def test_a_learner_serves_its_committed_prefix_and_says_how_far_it_reaches() -> None:
    async with SimCluster(3) as cluster:
        leader, learner = await with_learner(cluster)
        await leader.append(b"x")
        await cluster.until(lambda: learner.commit_index == 0)
        point = await learner.replica.reader.read_point(Consistency.COMMITTED)
        assert point.commit_index == 0
        assert (await learner.get(0, Consistency.COMMITTED)).value == b"x"
        with pytest.raises(NotLeader):
            await learner.get(0)


@virtual_time
async def test_a_node_that_is_cut_off_says_less_and_never_more_than_is_committed() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"before")
        await cluster.level()
        behind = cluster.others(leader)[0]
        cluster.faults.partition([behind.id], [node.id for node in cluster.others(behind)])
        await leader.append(b"after")
        await asyncio.sleep(1)
        point = await behind.replica.reader.read_point(Consistency.COMMITTED)
        assert point.commit_index == 0


@virtual_time
async def test_whoever_follows_a_follower_or_a_learner_hears_of_each_commit_while_the_log_is_quiet() -> None:
    async with SimCluster(3) as cluster:
        leader, learner = await with_learner(cluster)
        follower = cluster.others(leader)[0]
        listening = [asyncio.ensure_future(follow(node, 0, 3)) for node in (follower, learner)]
        for index in range(3):
            await settle()
            await leader.append(b"%d" % index)
            await asyncio.sleep(1)
        assert await asyncio.gather(*listening) == [[0, 1, 2], [0, 1, 2]]


@virtual_time
async def test_a_follow_goes_on_over_a_change_of_leaders() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        follower = cluster.others(leader)[0]
        listening = asyncio.ensure_future(follow(follower, 0, 2))
        await leader.append(b"0")
        await leader.replica.handover.transfer(follower.id)
        new = await cluster.leader()
        await new.append(b"1")
        assert await listening == [0, 1]


# Leases --------------------------------------------------------------------------------------------------------------


async def rounds_of(leader: SimNode, reads: int) -> int:
    before = leader.replica.metrics.read_index_rounds
    for _ in range(reads):
        await leader.get(0)
        await asyncio.sleep(0.05)
    return leader.replica.metrics.read_index_rounds - before


@pytest.mark.parametrize("lease_reads", [True, False])
@virtual_time
async def test_a_leader_with_a_lease_asks_no_quorum_and_one_without_asks_each_time(lease_reads: bool) -> None:
    async with SimCluster(3, lease_reads=lease_reads) as cluster:
        leader = await cluster.leader()
        await leader.append(b"x")
        await asyncio.sleep(1)
        assert await rounds_of(leader, 20) == (0 if lease_reads else 20)


@virtual_time
async def test_a_leader_that_is_cut_off_answers_nothing_once_another_may_lead() -> None:
    async with SimCluster(3, lease_reads=True) as cluster:
        old = await cluster.leader()
        await old.append(b"x")
        await asyncio.sleep(1)
        cluster.faults.partition([old.id], [node.id for node in cluster.others(old)])
        reads: list[asyncio.Task[object]] = []
        while not any(node.leads for node in cluster.others(old)):
            reads.append(asyncio.ensure_future(old.get(0)))
            await asyncio.sleep(0.01)
            answered = [read.done() for read in reads]
        new = next(node for node in cluster.others(old) if node.leads)
        late = asyncio.ensure_future(old.get(0))
        await new.append(b"y")
        await settle()
        assert answered[0], "the lease held for a while"
        assert not (late.done() and late.exception() is None), "it was over when another led"
        for read in (*reads, late):
            read.cancel()
        await asyncio.wait([*reads, late])
        cluster.network.heal()
        await cluster.level()


@virtual_time
async def test_the_lease_ends_where_a_handover_begins() -> None:
    async with SimCluster(3, lease_reads=True) as cluster:
        leader = await cluster.leader()
        await leader.append(b"x")
        await asyncio.sleep(1)
        assert leader.replica.core.has_lease(leader.replica.now_ms())
        transfer = asyncio.ensure_future(leader.replica.handover.transfer(None))
        await asyncio.sleep(0)
        assert not leader.replica.core.has_lease(leader.replica.now_ms())
        await transfer
