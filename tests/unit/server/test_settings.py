"""What the group agrees on while it runs."""

from __future__ import annotations

import asyncio

import pytest

from dledger.errors import Code, InvalidRequest, NotLeader, UnknownMember
from dledger.types import GroupSettings, NodeId, PreferredLeader
from tests.support.cluster import SimCluster
from tests.support.virtual_time import virtual_time


def prefers(*ids: str) -> tuple[PreferredLeader, ...]:
    return tuple(PreferredLeader(NodeId(node_id), 10 - at) for at, node_id in enumerate(ids))


@virtual_time
async def test_what_is_set_holds_on_every_node_and_after_a_restart() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        wanted = prefers(leader.id)
        assert await leader.replica.settings.set_preferred(wanted) == GroupSettings(wanted)
        await leader.replica.retention.set(1_000_000, 2_000_000)
        await cluster.level()
        for node in cluster.up():
            node.crash()
        for node in cluster.nodes.values():
            await node.start()
        await cluster.leader()
        assert {node.log.state.settings for node in cluster.up()} == {GroupSettings(wanted, 1_000_000, 2_000_000)}


@virtual_time
async def test_changes_made_at_once_keep_each_other() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        wanted = prefers(leader.id)
        await asyncio.gather(
            leader.replica.settings.set_preferred(wanted), leader.replica.retention.set(1_000_000, 2_000_000)
        )
        assert leader.log.state.settings == GroupSettings(wanted, 1_000_000, 2_000_000)


@virtual_time
async def test_what_is_so_already_is_not_written_again() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        wanted = prefers(leader.id)
        await leader.replica.settings.set_preferred(wanted)
        last = leader.log.last
        assert await leader.replica.settings.set_preferred(wanted) == GroupSettings(wanted)
        assert leader.log.last == last


@virtual_time
async def test_a_wish_that_is_in_the_log_and_not_committed_is_waited_for() -> None:
    """Whoever asked for it first may have given up."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        wanted = prefers(leader.id)
        followers = cluster.others(leader)
        for follower in followers:
            follower.crash()
        first = asyncio.ensure_future(leader.replica.settings.set_preferred(wanted))
        await cluster.until(lambda: leader.log.state.settings == GroupSettings(wanted))
        first.cancel()
        again = asyncio.ensure_future(leader.replica.settings.set_preferred(wanted))
        await asyncio.sleep(0.1)
        assert not again.done()
        for follower in followers:
            await follower.start()
        assert await again == GroupSettings(wanted)


@virtual_time
async def test_the_preference_is_cleared_by_an_empty_one() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.replica.settings.set_preferred(prefers(leader.id))
        assert await leader.replica.settings.set_preferred([]) == GroupSettings()


@virtual_time
async def test_who_is_no_member_cannot_be_preferred() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        with pytest.raises(UnknownMember, match="'n9' is not a member"):
            await leader.replica.settings.set_preferred(prefers("n9"))
        with pytest.raises(InvalidRequest, match="named twice"):
            await leader.replica.settings.set_preferred(prefers("n0", "n0"))


@virtual_time
async def test_who_leaves_while_a_preference_waits_its_turn_is_not_preferred() -> None:
    """The id may come back as another node."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        leaving = cluster.others(leader)[0].id
        first = asyncio.ensure_future(leader.replica.retention.set(1_000_000, None))
        waiting = asyncio.ensure_future(leader.replica.settings.set_preferred(prefers(leaving)))
        leaves = asyncio.ensure_future(leader.replica.members.remove(leaving))
        await cluster.until(lambda: first.done() and leaves.done() and waiting.done())
        assert isinstance(waiting.exception(), UnknownMember)
        assert leader.log.state.settings.preferred == ()


@virtual_time
async def test_a_follower_changes_nothing() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        with pytest.raises(NotLeader) as refused:
            await cluster.others(leader)[0].replica.settings.set_preferred([])
        assert refused.value.code is Code.NOT_LEADER


@virtual_time
async def test_a_dry_run_says_who_would_be_preferred_and_writes_nothing() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        last, wanted = leader.log.last, [PreferredLeader(NodeId("n1"), 9)]
        told = await leader.replica.settings.set_preferred(wanted, dry_run=True)
        assert told.preferred == tuple(wanted)
        with pytest.raises(UnknownMember):
            await leader.replica.settings.set_preferred([PreferredLeader(NodeId("n9"), 9)], dry_run=True)
        assert (leader.log.last, leader.log.state.settings) == (last, GroupSettings())
