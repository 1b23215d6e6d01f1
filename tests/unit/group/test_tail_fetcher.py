"""A candidate that lacks frames and that nobody can replace: what it takes, and what that changes."""

from __future__ import annotations

import asyncio

from dledger.common.types import Position
from dledger.raft.messages import Append, Fetch
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import virtual_time
from tests.unit.group.changes import members_of, refusal_of
from tests.unit.group.storm import UNKNOWN


async def behind_the_others(cluster: SimCluster) -> tuple[SimNode, SimNode, SimNode]:
    """Of three: a leader that is gone, a node that has all it committed, and one that does not, whom the latter hears
    and does not reach."""
    leader = await cluster.leader()
    ahead, behind = cluster.others(leader)
    await cluster.level()
    cluster.faults.partition([behind.id], [leader.id, ahead.id])
    for record in (b"a", b"b", b"c"):
        await leader.append(record)
    leader.crash()
    cluster.network.heal()
    ahead.replica.core.set_may_lead(False, ahead.replica.now_ms())
    return leader, ahead, behind


@virtual_time
async def test_a_candidate_takes_what_it_lacks_from_a_voter_that_cannot_lead() -> None:
    async with SimCluster(3) as cluster:
        _, ahead, behind = await behind_the_others(cluster)
        assert await cluster.leader(within_s=10) is behind
        await behind.append(b"d")
        await cluster.level()
        assert ahead.committed() == behind.committed() == [b"a", b"b", b"c", b"d"]


@virtual_time
async def test_what_was_taken_is_not_acknowledged_to_anybody() -> None:
    async with SimCluster(3) as cluster:
        _, ahead, behind = await behind_the_others(cluster)
        matched = behind.replica.core.matched_position
        await cluster.until(lambda: behind.log.last == ahead.log.last, within_s=10)
        assert behind.replica.core.matched_position == matched < behind.log.last.position
        assert behind.commit_position <= matched


@virtual_time
async def test_a_removal_that_reached_the_removed_node_alone_is_taken_from_it() -> None:
    """To the others it is a voter whom they need, and whose log is longer; it does not stand by that log."""
    async with SimCluster(4) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        removed, *others = cluster.others(leader)
        names = [other.id for other in others]
        cluster.faults.add(Rule(lambda _source, to, push: isinstance(push, Append) and to in names, drop_share=1.0))
        removal = asyncio.create_task(leader.replica.members.remove(removed.id))
        await cluster.until(lambda: removed.id not in members_of(removed))
        leader.crash()
        cluster.faults.clear()
        assert await refusal_of(removal) in UNKNOWN
        assert await cluster.leader(within_s=10) in others
        assert all(removed.id not in members_of(other) for other in others)


@virtual_time
async def test_a_node_that_is_replaced_in_time_asks_nobody() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"a")
        asked = cluster.faults.add(Rule(lambda _source, _target, message: isinstance(message, Fetch)))
        leader.crash()
        await cluster.leader()
        await asyncio.sleep(5)
        assert asked.seen == 0


@virtual_time
async def test_nothing_is_taken_from_anybody_while_a_leader_is_known() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        follower = cluster.others(leader)[0]
        await leader.append(b"a")
        await cluster.level()
        frames = leader.frames()[-1:]
        cut = Position(follower.log.last.position)
        follower.replica._handler.take_tail(frames)
        assert follower.log.last.position == cut
