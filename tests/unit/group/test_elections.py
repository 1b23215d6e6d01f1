"""Elections of whole nodes: who leads, how soon, and who follows."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.config import Timings
from dledger.common.types import Role
from dledger.raft.messages import Append
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster
from tests.support.virtual_time import virtual_time
from tests.unit.group.changes import add, change, refusal_of, voters_of
from tests.unit.group.storm import UNKNOWN
from tests.unit.group.test_members import wipe

TIMINGS = Timings()
HEARTBEAT_S = TIMINGS.heartbeat_interval_ms / 1000
TIMEOUT_S = TIMINGS.election_timeout_min_ms / 1000


@virtual_time
async def test_one_server_leads_within_a_second_and_in_a_higher_term_after_each_restart() -> None:
    async with SimCluster(1) as cluster:
        for term in (1, 2, 3):
            leader = await cluster.leader(within_s=1)
            assert leader.replica.term == term
            leader.crash()
            await leader.start()


@pytest.mark.parametrize("size", [2, 3, 5])
@virtual_time
async def test_servers_elect_one_leader_whom_the_others_follow(size: int) -> None:
    async with SimCluster(size) as cluster:
        leader = await cluster.leader(within_s=3)
        roles = sorted(node.replica.role.value for node in cluster.up())
        assert roles == ["follower"] * (size - 1) + ["leader"]
        assert {node.replica.leader_id for node in cluster.up()} == {leader.id}


@virtual_time
async def test_a_quiet_cluster_keeps_its_leader_and_its_term() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        term = leader.replica.term
        await asyncio.sleep(60)
        assert await cluster.leader() is leader
        assert leader.replica.term == term


@virtual_time
async def test_ten_forced_revotes_each_make_the_chosen_node_lead() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        for at in range(10):
            chosen = cluster.others(leader)[at % 2]
            term = leader.replica.term
            assert await leader.replica.handover.transfer(chosen.id) == chosen.id
            leader = await cluster.leader()
            assert leader is chosen
            assert leader.replica.term == term + 1


@virtual_time
async def test_a_restarted_follower_changes_neither_leader_nor_term() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        term = leader.replica.term
        follower = cluster.others(leader)[0]
        for stop in (follower.stop, None):
            if stop is None:
                follower.crash()
            else:
                await stop()
            await asyncio.sleep(5)
            await follower.start()
            assert await cluster.leader() is leader
            assert leader.replica.term == term


@virtual_time
async def test_a_leader_that_stops_cleanly_hands_over_at_once() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.stop()
        assert any(node.leads for node in cluster.up())
        assert (await cluster.leader(within_s=HEARTBEAT_S)) is not leader


@virtual_time
async def test_a_crashed_leader_is_replaced() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        leader.crash()
        assert (await cluster.leader(within_s=2.5)) is not leader


@virtual_time
async def test_a_killed_leader_whose_connections_close_is_replaced_within_an_election_timeout() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        closing = leader.transport.close()
        leader.is_up = False
        await closing
        leader.replica.fail(leader.replica.admission.not_leader().code, "killed")
        leader.failure = None
        assert (await cluster.leader(within_s=TIMEOUT_S)) is not leader


@virtual_time
async def test_a_leader_that_loses_both_followers_becomes_candidate_in_the_same_term_within_four_heartbeats() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        term = leader.replica.term
        for follower in cluster.others(leader):
            follower.crash()
        # The heartbeat that was answered, four that were not, and the moment at which the fifth would be due.
        await cluster.until(lambda: leader.replica.role is Role.CANDIDATE, within_s=5 * HEARTBEAT_S)
        assert leader.replica.term == term


@virtual_time
async def test_an_isolated_nodes_term_stands_still_and_it_comes_back_as_a_follower() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        term = leader.replica.term
        isolated = cluster.others(leader)[0]
        cluster.faults.partition([isolated.id], [node.id for node in cluster.others(isolated)])
        await asyncio.sleep(30)
        assert isolated.replica.role is Role.CANDIDATE
        assert isolated.replica.term == term
        cluster.network.heal()
        assert await cluster.leader() is leader
        assert leader.replica.term == term


@virtual_time
async def test_an_isolated_leader_is_replaced_and_follows_when_it_is_back() -> None:
    async with SimCluster(5) as cluster:
        old = await cluster.leader()
        cluster.faults.partition([old.id], [node.id for node in cluster.others(old)])
        new = await cluster.leader(within_s=4)
        assert new is not old
        # It hears no quorum for as long as the others hear no leader, and looks at that with every heartbeat.
        await cluster.until(lambda: old.replica.role is Role.CANDIDATE, within_s=2 * HEARTBEAT_S)
        cluster.network.heal()
        assert await cluster.leader() is new


@virtual_time
async def test_no_majority_no_leader() -> None:
    async with SimCluster(5) as cluster:
        leader = await cluster.leader()
        term = leader.replica.term
        away = [leader, *cluster.others(leader)[:2]]
        for node in away:
            node.crash()
        await asyncio.sleep(20)
        assert list(cluster.leaders) == [term]
        assert [node.replica.term for node in cluster.up()] == [term, term]
        await away[0].start()
        await cluster.leader(within_s=3)


# Founding ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_cluster_is_founded_when_all_its_founders_have_met() -> None:
    async with SimCluster(3, start=[0, 1]) as cluster:
        await asyncio.sleep(20)
        assert cluster.leaders == {}
        assert [node.replica.term for node in cluster.up()] == [0, 0]
        assert cluster[0].peers.founders_missing == ["n2"]
        await cluster[2].start()
        await cluster.leader(within_s=3)
        cluster[2].crash()
        await (await cluster.leader()).append(b"with two of three from then on")


@virtual_time
async def test_a_majority_of_emptied_disks_founds_no_second_cluster() -> None:
    async with SimCluster(3) as cluster:
        keeper = await cluster.leader()
        await keeper.append(b"acknowledged")
        emptied = cluster.others(keeper)
        for node in emptied:
            node.crash()
            node.wipe()
        keeper.crash()
        for node in emptied:
            await node.start()
        await asyncio.sleep(10)
        await keeper.start()
        await asyncio.sleep(10)
        assert not any(node.leads for node in cluster.up())
        assert keeper.records() == [b"acknowledged"]
        assert [node.records() for node in emptied] == [[], []]
        for node in cluster.up():
            node.crash()


@virtual_time
async def test_a_founder_whose_log_is_still_empty_elects_one_whose_is_not() -> None:
    async with SimCluster(3) as cluster:
        empty = cluster[0]
        cluster.faults.add(Rule(lambda _from, to, m: to == empty.id and isinstance(m, Append), drop_share=1))
        empty.replica.core.set_may_lead(False, empty.replica.now_ms())
        leader = await cluster.leader()
        assert leader is not empty
        await leader.append(b"x")
        other = next(node for node in cluster.others(leader) if node is not empty)
        leader.crash()
        empty.crash()
        await empty.start()
        await cluster.until(lambda: other.leads)
        assert other.records() == [b"x"]


@virtual_time
async def test_a_follower_that_hears_nothing_from_its_leader_does_not_disturb_the_others() -> None:
    """Only one way is cut: its pre-votes arrive, and are refused by those who hear their leader."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        term = leader.replica.term
        deaf = cluster.others(leader)[0]
        cluster.faults.cut(leader.id, deaf.id)
        await asyncio.sleep(20)
        assert leader.leads
        assert leader.replica.term == term


@virtual_time
async def test_elections_come_to_an_end_with_a_third_of_all_messages_lost() -> None:
    for seed in range(5):
        async with SimCluster(5, seed=seed) as cluster:
            cluster.faults.add(Rule(drop_share=0.3))
            await cluster.until(lambda: any(n.leads for n in cluster.up()), within_s=20)


@virtual_time
async def test_a_listener_hears_every_role_once_in_order_with_its_term() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        assert [seen.role for seen in leader.roles][-2:] == [Role.CANDIDATE, Role.LEADER]
        assert leader.roles[-1] == (Role.LEADER, leader.replica.term, leader.id)
        for node in cluster.up():
            assert all(a != b for a, b in zip(node.roles, node.roles[1:], strict=False))
            assert [seen.term for seen in node.roles] == sorted(seen.term for seen in node.roles)


@virtual_time
async def test_a_learner_whose_log_is_needed_leads_for_a_moment() -> None:
    """Promoted in a frame that one voter alone has, then written to by a later leader that is gone for good: the two
    voters that are left need it, and its log is the last."""
    async with SimCluster(3) as cluster:
        learner = await add(cluster, 3)
        promoter = await cluster.leader()
        short, behind = (node for node in cluster.others(promoter) if node is not learner)
        await cluster.level()
        cluster.faults.partition([promoter.id], [short.id, behind.id, learner.id])
        promotion = asyncio.create_task(promoter.replica.members.promote(learner.id))
        await cluster.until(lambda: learner.id in promoter.replica.core.membership.voters)
        behind.replica.core.set_may_lead(False, behind.replica.now_ms())
        cluster.faults.add(Rule(lambda _source, to, m: isinstance(m, Append) and to == behind.id, drop_share=1.0))
        await cluster.until(lambda: short.leads and learner.log.last.term == short.replica.term, within_s=10)
        short.crash()
        cluster.faults.clear()
        cluster.network.heal()
        behind.replica.core.set_may_lead(True, behind.replica.now_ms())
        assert await refusal_of(promotion) in UNKNOWN
        await cluster.until(lambda: learner.leads, within_s=15)
        await cluster.until(lambda: promoter.leads or behind.leads, within_s=15)
        leader = await cluster.leader()
        await leader.append(b"all is well")
        await cluster.level()
        assert learner.id not in leader.replica.core.membership.voters


@virtual_time
async def test_a_learner_fetches_its_promotion_from_a_candidate_that_was_readmitted_in_what_it_lacks() -> None:
    """By the learner's log the candidate's disk is still in doubt, and gets no vote; and nobody else is left."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        removed, wiped = cluster.others(leader)
        learner = await add(cluster, 3)
        await wipe(wiped)
        await cluster.until(lambda: all(wiped.id in node.replica.core.doubted for node in (leader, learner)))
        await cluster.level()
        await asyncio.sleep(TIMEOUT_S)  # the learner is fit, and stays so for as long as it is heard
        held = cluster.faults.add(Rule(lambda _s, to, m: to == learner.id and isinstance(m, Append), drop_share=1))
        await change(cluster, lambda members: members.readmit(wiped.id))
        await cluster.until(lambda: wiped.commit_position == leader.commit_position)
        for ask in (
            lambda members: members.promote(wiped.id),
            lambda members: members.promote(learner.id),
            lambda members: members.remove(removed.id),
        ):
            await change(cluster, ask)
        await cluster.until(lambda: wiped.commit_position == leader.commit_position)
        assert learner.id in voters_of(wiped)
        assert learner.id not in voters_of(learner)
        leader.crash()
        cluster.faults.remove(held)
        await cluster.until(lambda: wiped.leads or learner.leads, within_s=20 * TIMEOUT_S)
