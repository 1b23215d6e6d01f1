"""A disk that replaced a founder's comes to a time when that one was the only voter: it does not lead by it."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dledger.common.types import NodeId, Position
from dledger.raft.messages import Append
from dledger.raft.state import VoteBlocker
from dledger.testing.network_faults import Rule
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.process import in_world
from tests.unit.group.rot import append, learner, level, promote, rotting, until


async def empty(
    cluster: SimulatedCluster, founder: SimHost, *, as_founder: bool = False, ends_early: bool = False
) -> None:
    """Others are added and promoted, and the disk of ``founder`` is replaced. What it is sent then ends before the
    promotions, or before anybody was added."""
    addition = founder.replica.log.last.position + 1
    others = [await learner(cluster, founder) for _ in range(2)]
    await append(founder, 200)
    promotion = founder.replica.log.last.position + 1
    for host in others:
        await founder.ask(partial(founder.replica.members.promote, host.id))
    founder.crash()
    founder.wipe()
    founder.peers = {str(host.id): host.address for host in cluster.hosts.values() if as_founder or host in others}
    hold_up(cluster, founder.id, Position(addition if ends_early else promotion))
    await founder.start()
    await until(lambda: founder.replica.core.membership.voters == {founder.id}, poll_s=0.0001)
    await asyncio.sleep(3)


def hold_up(cluster: SimulatedCluster, node_id: NodeId, end: Position) -> None:
    """It is sent no frame from ``end`` on."""

    def is_beyond(_: NodeId, to: NodeId, what: object) -> bool:
        return to == node_id and isinstance(what, Append) and what.frames[-1].header.position >= end

    cluster.network.faults.add(Rule(is_beyond, 1.0))


@pytest.mark.parametrize("as_founder", [False, True])
@pytest.mark.parametrize("ends_early", [False, True])
@in_world
async def test_an_emptied_founder_does_not_lead_by_the_time_when_it_was_alone(
    as_founder: bool, ends_early: bool
) -> None:
    async with rotting(1, appends=200) as (cluster, (founder,)):
        await empty(cluster, founder, as_founder=as_founder, ends_early=ends_early)
        others = [host.id for host in cluster.hosts.values() if host is not founder]
        cluster.network.faults.partition([founder.id], others)
        await asyncio.sleep(3)
        assert not founder.leads
        founder.crash(power=False)
        await founder.start()
        await asyncio.sleep(3)
        assert founder.replica.core.membership.voters == {founder.id}, "by what it has"
        assert not founder.leads


@in_world
async def test_a_minority_of_emptied_founders_does_not_elect_by_the_time_when_it_was_a_majority() -> None:
    async with rotting(3, appends=100) as (cluster, (leader, *emptied)):
        addition = leader.replica.log.last.position + 1
        others = [await learner(cluster, leader) for _ in range(2)]
        for host in others:
            await promote(leader, host)
        await level(cluster)
        for host in emptied:
            host.crash()
            host.wipe()
            host.peers = {str(each.id): each.address for each in (leader, *others)}
            hold_up(cluster, host.id, Position(addition))
        for host in emptied:
            await host.start()
        await until(lambda: all(host.replica.log.last.position > 1 for host in emptied))
        leader.crash(power=False)
        await asyncio.sleep(10)
        assert [host.replica.core.vote_blockers for host in emptied] == [{VoteBlocker.OTHER_DISK}] * 2
        assert not any(host.leads for host in emptied)


@in_world
async def test_it_votes_and_leads_again_when_it_was_readmitted_and_promoted() -> None:
    async with rotting(1, appends=5) as (cluster, (founder,)):
        await empty(cluster, founder)
        assert founder.replica.core.vote_blockers == {VoteBlocker.OTHER_DISK}
        cluster.network.mend()
        (leader,) = cluster.leaders()
        await leader.ask(partial(leader.replica.members.readmit, founder.id))
        await level(cluster)
        assert not founder.replica.core.vote_blockers
        await leader.ask(partial(leader.replica.members.promote, founder.id))
        await leader.ask(partial(leader.replica.handover.transfer, founder.id))
        await until(lambda: founder.leads)


@in_world
async def test_an_uncommitted_removal_that_a_disk_on_its_way_alone_has_costs_no_majority() -> None:
    """Five: ``away`` is down and is to be removed; the leader goes for good before anybody but ``replaced``, whose disk
    is in doubt, has that frame. Then ``away`` is back: three of five voters, by all that is committed."""
    async with rotting(5) as (cluster, (leader, away, replaced, *others)):
        for host in (away, replaced):
            host.crash()
        replaced.wipe()
        await replaced.start()
        await until(lambda: replaced.replica.log.last == leader.replica.log.last)
        ids = [host.id for host in others]
        rule = cluster.network.faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to in ids, 1.0))
        common = leader.replica.log.last.position
        doomed = leader.ask(partial(leader.replica.members.remove, away.id))
        await until(lambda: replaced.replica.log.durable_position == common + 1, poll_s=0.001)
        assert replaced.replica.core.vote_blockers == {VoteBlocker.OTHER_DISK}
        assert leader.replica.core.commit_position == common
        leader.crash()
        doomed.exception()
        cluster.network.faults.remove(rule)
        await asyncio.sleep(10)
        await away.start()
        await until(lambda: bool(cluster.leaders()), within_s=60)
