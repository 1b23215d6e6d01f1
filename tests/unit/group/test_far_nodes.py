"""Nodes so far apart, or links so slow, that every answer takes longer than it is waited for at first."""

from __future__ import annotations

import asyncio

from dledger.common.config import Timings
from dledger.common.types import GENESIS, Position
from dledger.raft.messages import AppendResponse, FetchResponse, Message
from dledger.testing.network_faults import Rule
from tests.simulation.process import in_world
from tests.support.cluster import SimCluster
from tests.support.virtual_time import virtual_time
from tests.unit.group.rot import leave_constrained, places, rotting, until


@virtual_time
async def test_a_follower_whose_answers_take_longer_than_push_resend_catches_up_and_keeps_up() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        far = cluster.others(leader)[0]
        cluster.faults.add(Rule(lambda source, _target, _message: source == far.id, delay_s=0.6))
        cluster.faults.add(Rule(lambda _source, target, _message: target == far.id, delay_s=0.8))
        await asyncio.sleep(5)
        far.crash()
        await leader.append(b"while it was away")
        await far.start()
        await cluster.until(lambda: far.log.last == leader.log.last, within_s=20)
        progress = leader.replica.dispatchers[far.id].progress
        await cluster.until(lambda: progress.match == leader.log.last.position, within_s=20)
        resent = leader.replica.metrics.pushes_resent
        for _ in range(50):
            await leader.append(b"x")
            await asyncio.sleep(0.2)
        await cluster.until(lambda: progress.match == leader.log.last.position, within_s=5)
        assert leader.replica.metrics.pushes_resent == resent


@virtual_time
async def test_a_cluster_of_nodes_that_are_far_from_each_other_commits() -> None:
    timings = Timings(heartbeat_interval_ms=500, election_timeout_min_ms=5_000, election_timeout_max_ms=10_000)
    async with SimCluster(3, timings=timings) as cluster:
        cluster.faults.add(Rule(delay_s=0.9))
        leader = await cluster.leader(within_s=120)
        pending = [leader.submit(b"%d" % at) for at in range(3)]
        await asyncio.wait_for(asyncio.gather(*pending), 20)


@virtual_time
async def test_what_a_slow_disk_takes_long_to_acknowledge_is_not_sent_again_and_again() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        slow = cluster.others(leader)[0]
        cluster.faults.add(
            Rule(lambda source, _to, what: source == slow.id and isinstance(what, AppendResponse), delay_s=1.5)
        )
        for _ in range(3):
            await leader.append(b"x")
            await asyncio.sleep(4)
        resent = leader.replica.metrics.pushes_resent
        for _ in range(20):
            await leader.append(b"x")
            await asyncio.sleep(2)
        assert leader.replica.metrics.pushes_resent == resent


@in_world
async def test_a_candidate_gets_what_it_lacks_over_a_link_that_is_slow() -> None:
    """As much as a message holds comes later than it is waited for."""
    async with rotting(5) as (cluster, hosts):
        ends, middle = await leave_constrained(cluster, hosts, appends=40), hosts[1]
        whole_bytes, last = cluster.config_of(middle).limits.push_message_bytes, max(places(ends[0]))
        cluster.network.faults.add(Rule(lambda _from, _to, what: size_bytes(what) > 0.6 * whole_bytes, delay_s=2.2))
        for host in (*ends, middle):
            await host.start()
        await until(lambda: middle.replica.log.last.position >= last, 120)


@in_world
async def test_what_a_node_was_asked_that_dies_is_waited_for_until_its_connection_ends() -> None:
    """Nodes that are far from each other are given long to answer."""
    far = Timings(heartbeat_interval_ms=500, election_timeout_min_ms=5_000, election_timeout_max_ms=10_000)
    async with rotting(timings=far) as (_, (_, asking, asked)):
        asked.crash(power=False)
        began_s = asyncio.get_running_loop().time()
        assert await asking.replica.exchange.client.ask(asked.id, GENESIS, Position(5)) is None
        assert asyncio.get_running_loop().time() - began_s < 5


def size_bytes(message: Message) -> int:
    """Of the frames that were fetched in it."""
    frames = message.frames if isinstance(message, FetchResponse) else ()
    return sum(frame.header.stored_bytes for frame in frames)
