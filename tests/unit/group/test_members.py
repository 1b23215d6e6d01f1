"""Members come and go while the group works: one at a time, never the quorum with them, and none that is not a member
disturbs those that are."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.config import Limits
from dledger.common.errors import ChangeRefused, Code, NotLeader
from dledger.common.types import NodeId, Position, PreferredLeader, Role
from dledger.raft.messages import Append, VoteRequest, VoteResponse
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode, address_of, outcome
from tests.support.virtual_time import settle, virtual_time
from tests.unit.group.changes import (
    Load,
    add,
    add_voter,
    caught_up,
    change,
    members_of,
    readmit,
    refusal_of,
    remove,
    voters_of,
)


def stop_pushes(cluster: SimCluster) -> Rule:
    return cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Append), drop_share=1))


# Coming --------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_learner_gets_everything_and_is_asked_for_nothing() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        for at in range(10):
            await leader.append(b"%d" % at)
        learner = await add(cluster, 3)
        assert learner.committed() == leader.committed()
        assert learner.replica.role is Role.LEARNER
        learner.crash()
        cluster.others(leader)[0].crash()
        assert (await leader.append(b"x")).base_index == 10, "two voters of three are a quorum, whoever learns"


@virtual_time
async def test_a_promoted_learner_is_a_voter_on_every_node_with_the_disk_it_has() -> None:
    async with SimCluster(3) as cluster:
        new = await add_voter(cluster, 3)
        await cluster.level()
        for node in cluster.up():
            member = node.replica.core.membership.members[new.id]
            assert (member.voter, member.node_uuid, member.admitted_start_count) == (True, new.uuid, len(new.nonces))
        assert new.replica.role is Role.FOLLOWER


@virtual_time
async def test_a_new_voter_is_needed_for_the_quorum_and_makes_one() -> None:
    async with SimCluster(3) as cluster:
        new = await add_voter(cluster, 3)
        leader = await cluster.leader()
        down = [node for node in cluster.others(leader) if node is not new]
        down[0].crash()
        await leader.append(b"three of four")
        down[1].crash()
        pending = asyncio.ensure_future(outcome(leader.append(b"two of four")))
        await asyncio.sleep(0.2)
        assert not pending.done()
        await down[0].start()
        await pending


@virtual_time
async def test_a_learner_that_does_not_run_or_lags_is_not_promoted() -> None:
    async with SimCluster(3) as cluster:
        learner = await add(cluster, 3)
        members = (await cluster.leader()).replica.members
        learner.crash()
        await cluster.until(lambda: not (cluster[0].is_connected(learner.id)))
        assert await refusal_of(members.promote(learner.id)) is Code.CHANGE_REFUSED
        assert await refusal_of(members.promote(NodeId("nobody"))) is Code.UNKNOWN_MEMBER


@virtual_time
async def test_what_is_so_already_is_not_written_again() -> None:
    async with SimCluster(3) as cluster:
        new = await add_voter(cluster, 3)
        leader = await cluster.leader()
        last, members = leader.log.last, leader.replica.members
        again = await members.add(new.id, address_of(new.id))
        assert again.position == 0
        assert (await members.promote(new.id)).position == 0
        assert (await members.remove(NodeId("nobody"))).position == 0
        assert leader.log.last == last


@virtual_time
async def test_a_dry_run_says_what_would_be_and_changes_nothing() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        members, last = leader.replica.members, leader.log.last
        added = await members.add(NodeId("n9"), "n9:1", dry_run=True)
        assert [member.id for member in added.members] == ["n0", "n1", "n2", "n9"]
        removed = await members.remove(leader.id, dry_run=True)
        assert leader.id not in [member.id for member in removed.members]
        assert added.position == removed.position == 0
        assert leader.log.last == last
        assert leader.leads


@virtual_time
async def test_a_joined_node_knows_its_peers_by_the_log_when_it_restarts() -> None:
    """Those that it was once told to ask may be gone."""
    async with SimCluster(3) as cluster:
        new = await add_voter(cluster, 3)
        another = await add_voter(cluster, 4)
        gone = (await cluster.leader()) if (await cluster.leader()) not in (new, another) else cluster[0]
        await remove(cluster, gone)
        await gone.stop()
        await new.stop()
        cluster._joined[new.id] = {gone.id: address_of(gone.id)}
        await new.start()
        await cluster.until(lambda: new.replica.leader_id != "")
        await cluster.level()


# Going ---------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_removed_node_knows_it_and_never_campaigns() -> None:
    async with SimCluster(4) as cluster:
        leader = await cluster.leader()
        gone = cluster.others(leader)[0]
        await remove(cluster, gone)
        term = leader.replica.term
        await asyncio.sleep(10)
        assert gone.id not in members_of(gone)
        assert gone.replica.role is Role.LEARNER
        assert leader.leads
        assert leader.replica.term == term
        assert gone.replica.term == term


@pytest.mark.parametrize("heard_of_it", [True, False])
@virtual_time
async def test_a_removed_node_that_restarts_with_its_old_data_disturbs_nobody(heard_of_it: bool) -> None:
    async with SimCluster(4) as cluster:
        leader = await cluster.leader()
        gone = cluster.others(leader)[0]
        if not heard_of_it:
            gone.crash()
        await remove(cluster, gone)
        if heard_of_it:
            await gone.stop()
        await gone.start()
        assert (gone.id in voters_of(gone)) is not heard_of_it
        term = leader.replica.term
        await asyncio.sleep(10)
        assert leader.leads
        assert {node.replica.term for node in cluster.up()} == {term}
        assert gone.transport.last_refusal is not None
        assert gone.transport.last_refusal.code is Code.UNKNOWN_MEMBER


@virtual_time
async def test_a_node_that_was_never_added_disturbs_nobody_and_learns_nothing() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"x")
        stranger = await cluster.join(3)
        term = leader.replica.term
        await asyncio.sleep(10)
        assert leader.leads
        assert leader.replica.term == term
        assert stranger.replica.term == 0
        assert stranger.records() == []


@virtual_time
async def test_a_leader_that_is_to_be_removed_hands_over_first_and_names_the_next() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        with pytest.raises(NotLeader) as refused:
            await leader.replica.members.remove(leader.id)
        new = await cluster.leader()
        assert new is not leader
        assert refused.value.leader_id == new.id
        await remove(cluster, leader)
        assert voters_of(new) == {node.id for node in cluster.others(leader)}
        await new.append(b"x")


@virtual_time
async def test_a_removal_that_would_lose_the_quorum_is_refused() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        down, other = cluster.others(leader)
        down.crash()
        await cluster.until(lambda: not leader.is_connected(down.id))
        members = leader.replica.members
        assert await refusal_of(members.remove(other.id)) is Code.CHANGE_REFUSED
        assert await refusal_of(members.remove(leader.id)) is Code.CHANGE_REFUSED
        assert leader.leads
        await members.remove(down.id)
        assert voters_of(leader) == {leader.id, other.id}


async def silent(cluster: SimCluster, node: SimNode) -> None:
    """``node`` stands still, and nothing but its silence shows it."""
    node.freeze()
    leader = await cluster.leader()
    await asyncio.sleep(leader.replica.config.timings.election_timeout_min_ms / 1000)
    assert leader.is_connected(node.id)


@virtual_time
async def test_a_removal_that_would_rest_on_a_voter_that_stands_still_is_refused() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        frozen, other = cluster.others(leader)
        await silent(cluster, frozen)
        members = leader.replica.members
        assert await refusal_of(members.remove(other.id)) is Code.CHANGE_REFUSED
        assert await refusal_of(members.remove(leader.id)) is Code.CHANGE_REFUSED
        await leader.append(b"two of three are there")
        frozen.thaw()
        await cluster.level()
        await members.remove(other.id)
        await leader.append(b"two of two are there")


@virtual_time
async def test_a_learner_that_stands_still_is_not_promoted() -> None:
    async with SimCluster(3) as cluster:
        learner = await add(cluster, 3)
        leader = await cluster.leader()
        cluster.others(leader)[0].crash()
        await silent(cluster, learner)
        assert await refusal_of(leader.replica.members.promote(learner.id)) is Code.CHANGE_REFUSED
        learner.thaw()
        await asyncio.sleep(0.2)  # it answers heartbeats again
        await leader.replica.members.promote(learner.id)
        await leader.append(b"three of four")


@virtual_time
async def test_a_removal_that_would_rest_on_a_voter_that_lags_is_refused_until_it_has_caught_up() -> None:
    async with SimCluster(3, limits=Limits(max_transfer_lag_frames=5)) as cluster:
        leader = await cluster.leader()
        lagging, other = cluster.others(leader)
        slow = cluster.faults.add(Rule(lambda _s, to, m: to == lagging.id and isinstance(m, Append), drop_share=1))
        for at in range(10):
            await leader.append(b"%d" % at)
        with pytest.raises(ChangeRefused, match=f"{lagging.id} is 1[0-9] frames behind") as refused:
            await leader.replica.members.remove(other.id)
        assert refused.value.metadata == {"waits_for": "catch_up"}
        cluster.faults.remove(slow)
        await cluster.level()
        await asyncio.sleep(0.01)  # its last acknowledgement is on its way
        await leader.replica.members.remove(other.id)


@virtual_time
async def test_the_last_voter_is_not_removed() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        assert await refusal_of(leader.replica.members.remove(leader.id)) is Code.CHANGE_REFUSED


@virtual_time
async def test_who_is_removed_is_preferred_no_more() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        gone, other = cluster.others(leader)
        chosen = [PreferredLeader(leader.id, 9), PreferredLeader(gone.id, 5), PreferredLeader(other.id, 1)]
        await leader.replica.settings.set_preferred(chosen)
        await remove(cluster, gone)
        assert leader.log.state.settings.preferred == (chosen[0], chosen[2])


@virtual_time
async def test_a_removed_id_may_come_back_with_another_disk() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        gone = cluster.others(leader)[0]
        await remove(cluster, gone)
        await gone.stop()
        await add_voter(cluster, int(gone.id[1:]))
        await cluster.level()
        cluster.others(leader)[-1].crash()
        await leader.append(b"resting on it")


# One at a time -------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_change_is_refused_while_another_is_not_committed() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        rule = stop_pushes(cluster)
        members = leader.replica.members
        first = asyncio.ensure_future(members.add(NodeId("n8"), "n8:1"))
        await settle()
        assert await refusal_of(members.add(NodeId("n9"), "n9:1")) is Code.CHANGE_PENDING
        assert await refusal_of(members.add(NodeId("n8"), "n8:1")) is Code.CHANGE_PENDING, "it may yet be taken back"
        cluster.faults.remove(rule)
        assert (await first).position > 0
        assert (await members.add(NodeId("n9"), "n9:1")).position > 0


@virtual_time
async def test_of_two_changes_in_one_turn_one_is_made() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        members = leader.replica.members
        leader.submit(b"so that the turn's end is waited for")
        first = asyncio.ensure_future(members.add(NodeId("n8"), "n8:1"))
        second = asyncio.ensure_future(members.add(NodeId("n9"), "n9:1"))
        await settle()
        first.cancel()
        assert await refusal_of(second) is Code.CHANGE_PENDING
        await cluster.until(lambda: "n8" in members_of(leader))
        await cluster.level()


@virtual_time
async def test_a_leader_that_has_not_committed_in_its_term_changes_nothing() -> None:
    async with SimCluster(3) as cluster:
        await cluster.leader()
        rule = stop_pushes(cluster)
        cluster.up()[0].replica.guard(lambda: None)
        old = await cluster.leader()
        old.crash()
        await cluster.until(lambda: any(node.leads for node in cluster.up()))
        new = next(node for node in cluster.up() if node.leads)
        assert await refusal_of(new.replica.members.add(NodeId("n9"), "n9:1")) is Code.LEADER_NOT_READY
        cluster.faults.remove(rule)


@pytest.mark.parametrize("reaches_others", [True, False])
@virtual_time
async def test_a_change_whose_leader_crashes_is_there_on_all_or_gone_on_all(reaches_others: bool) -> None:
    async with SimCluster(3) as cluster:
        old = await cluster.leader()
        if reaches_others:
            cluster.faults.add(Rule(lambda _s, to, _m: to == old.id, drop_share=1))
        else:
            cluster.faults.add(Rule(lambda source, _t, _m: source == old.id, drop_share=1))
        asked = asyncio.ensure_future(outcome(old.replica.members.add(NodeId("n9"), "n9:1")))  # type: ignore[arg-type]
        await asyncio.sleep(0.1)
        assert "n9" in members_of(old), "effective when appended"
        old.crash()
        assert await asked is Code.TERM_CHANGED
        cluster.faults.clear()
        new = await cluster.leader()
        await old.start()
        await cluster.level()
        assert {("n9" in members_of(node)) for node in cluster.up()} == {reaches_others}
        assert (await change(cluster, lambda members: members.add(NodeId("n9"), "n9:1"))).position == (
            0 if reaches_others else new.log.last.position
        )


@virtual_time
async def test_a_removal_that_is_taken_back_leaves_a_member_like_any_other() -> None:
    async with SimCluster(3) as cluster:
        old = await cluster.leader()
        victim = cluster.others(old)[0]
        others = [node.id for node in cluster.others(old) if node is not victim]
        cluster.faults.add(Rule(lambda source, to, _m: source == old.id and to in others, drop_share=1))
        asked = asyncio.ensure_future(outcome(old.replica.members.remove(victim.id)))  # type: ignore[arg-type]
        await cluster.until(lambda: victim.id not in members_of(victim))
        old.crash()
        assert await asked is Code.TERM_CHANGED
        cluster.faults.clear()
        await old.start()
        await cluster.until(lambda: any(node.leads and node.replica.core.is_ready for node in cluster.up()))
        await cluster.level()


# Under load ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_all_five_nodes_are_replaced_one_by_one_under_load() -> None:
    async with SimCluster(5) as cluster:
        async with Load(cluster):
            for at in range(5):
                await add_voter(cluster, 5 + at)
                gone = cluster[at]
                await remove(cluster, gone)
                await gone.stop()
        leader = await cluster.leader()
        assert voters_of(leader) == {f"n{at}" for at in range(5, 10)}
        assert len(leader.committed()) > 100


@virtual_time
async def test_all_five_nodes_are_restarted_one_by_one_under_load() -> None:
    async with SimCluster(5) as cluster:
        leaders = {(await cluster.leader()).id}
        async with Load(cluster):
            for node in list(cluster.nodes.values()):
                await node.stop()
                leader = await cluster.leader()
                leaders.add(leader.id)
                before = leader.commit_index
                await cluster.until(lambda leader=leader, before=before: leader.commit_index > before)  # type: ignore[misc]
                await node.start()
                await caught_up(cluster, node)
        assert len(leaders) > 1, "whoever leads is restarted too"


@virtual_time
async def test_a_dead_node_is_replaced() -> None:
    async with SimCluster(3) as cluster:
        async with Load(cluster):
            leader = await cluster.leader()
            dead = cluster.others(leader)[0]
            dead.crash()
            await remove(cluster, dead)
            await add_voter(cluster, 3)
        assert len(voters_of(leader)) == 3


async def replaced_all_but_one(cluster: SimCluster) -> SimNode:
    """Of three founders two are replaced by n3 and n4, while the one that is returned is away."""
    away = cluster.others(await cluster.leader())[0]
    away.crash()
    founders = [node for node in cluster.nodes.values() if node is not away]
    for at in (3, 4):
        await add_voter(cluster, at)
    for gone in founders:
        await remove(cluster, gone)
        await gone.stop()
    return away


@virtual_time
async def test_a_member_that_was_away_while_all_others_were_replaced_is_found_again() -> None:
    """It knows none of those who lead now, and they know it."""
    async with SimCluster(3) as cluster:
        away = await replaced_all_but_one(cluster)
        await (await cluster.leader()).append(b"while it was away")
        await away.start()
        await cluster.until(lambda: away.records() == [b"while it was away"])
        await cluster.level()


@virtual_time
async def test_a_voter_that_knows_no_candidate_is_still_asked() -> None:
    """The only node with the newest log is one that the others, away meanwhile, never heard of."""
    async with SimCluster(3) as cluster:
        away = await replaced_all_but_one(cluster)
        await cluster[3].append(b"x") if cluster[3].leads else await cluster[4].append(b"x")
        survivor = cluster[3]
        cluster[4].crash()
        await away.start()
        await cluster.until(lambda: survivor.leads and survivor.replica.core.is_ready, within_s=20)
        await cluster.until(lambda: away.records() == survivor.records())


# Disks ---------------------------------------------------------------------------------------------------------------


async def wipe(node: SimNode) -> None:
    node.crash()
    node.wipe()
    await node.start()


@virtual_time
async def test_a_wiped_node_neither_votes_nor_counts_until_it_is_readmitted_and_then_it_does() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"x")
        victim, other = cluster.others(leader)
        await wipe(victim)
        await cluster.until(lambda: victim.records() == [b"x"])
        other.crash()
        unacknowledged = asyncio.ensure_future(outcome(leader.append(b"y")))
        await asyncio.sleep(3)
        assert leader.commit_index == 0
        assert not any(node.leads for node in cluster.up()), "nobody leads with the vote of a wiped disk"
        await other.start()
        await cluster.leader()
        await readmit(cluster, victim)
        await unacknowledged
        (await cluster.leader()).crash()
        await cluster.leader()
        await (await cluster.leader()).append(b"z")


@virtual_time
async def test_a_wiped_node_hears_a_leader_that_came_after_its_configuration_was_written() -> None:
    """Those of its configuration that are there still tell it which cluster is theirs."""
    async with SimCluster(3) as cluster:
        victim = cluster.others(await cluster.leader())[0]
        for at in (3, 4):
            await add_voter(cluster, at)
        await (await cluster.leader()).append(b"x")
        await (await cluster.leader()).replica.handover.transfer(cluster[4].id)
        assert (await cluster.leader()) is cluster[4]
        await wipe(victim)
        await cluster.until(lambda: victim.records() == [b"x"])
        await readmit(cluster, victim)


@virtual_time
async def test_a_disk_restored_from_a_backup_is_in_doubt_and_can_be_readmitted() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        victim, other = cluster.others(leader)
        await victim.stop()
        backup = victim.backup()
        await victim.start()
        await leader.append(b"x")
        await victim.stop()
        victim.restore(backup)
        await victim.start()
        await cluster.until(lambda: leader.is_connected(victim.id))
        assert victim.id in leader.replica.core.doubted
        await readmit(cluster, victim)
        assert victim.id not in leader.replica.core.doubted
        other.crash()
        await leader.append(b"resting on it")


@virtual_time
async def test_a_disk_restored_from_a_backup_stays_in_doubt_however_often_it_restarts() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        victim = cluster.others(leader)[0]
        await victim.stop()
        backup = victim.backup()
        await victim.start()
        await leader.append(b"x")
        await victim.stop()
        victim.restore(backup)
        for _ in range(3):
            await victim.start()
            await cluster.until(lambda: leader.is_connected(victim.id))
            assert victim.id in leader.replica.core.doubted
            await victim.stop()


@virtual_time
async def test_who_never_met_a_member_knows_by_the_log_that_its_disk_is_another_one() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        victim = cluster.others(leader)[0]
        await victim.stop()
        new = await add_voter(cluster, 3)
        await cluster.level()
        victim.wipe()
        await victim.start()
        await cluster.until(lambda: new.is_connected(victim.id))
        assert victim.id in new.replica.core.doubted


@virtual_time
async def test_the_right_disk_ends_the_doubt_that_another_raised() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        victim, other = cluster.others(leader)
        await victim.stop()
        right = victim.backup()
        victim.wipe()
        await victim.start()
        await cluster.until(lambda: victim.id in leader.replica.core.doubted)
        await leader.append(b"x")
        await victim.stop()
        victim.restore(right)
        await victim.start()
        await cluster.until(lambda: victim.records() == [b"x"])
        assert victim.id not in leader.replica.core.doubted
        other.crash()
        await leader.append(b"resting on it")


@virtual_time
async def test_a_node_that_lost_what_it_acknowledged_is_in_doubt_also_after_everybody_restarted() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        victim = cluster.others(leader)[0]
        for at in range(5):
            await leader.append(b"%d" % at)
        await cluster.level()
        victim.crash()
        victim.log._cut(Position(2))
        victim.log.reopen()
        await victim.start()
        await cluster.until(lambda: victim.id in leader.replica.core.doubted)
        await cluster.level()
        for node in list(cluster.up()):
            await node.stop()
        for node in cluster.nodes.values():
            await node.start()
        assert victim.id in leader.replica.core.doubted
        now_leading = await cluster.leader()
        if now_leading is not leader:
            await now_leading.replica.handover.transfer(leader.id)
        await readmit(cluster, victim)
        assert victim.id not in leader.replica.core.doubted


@virtual_time
async def test_an_impostor_with_a_members_id_is_turned_away_while_the_member_is_there() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        victim = cluster.others(leader)[0]
        impostor = victim.local_identity()._replace(node_uuid=b"another", start_nonces=(1,))
        with pytest.raises(Exception, match="is connected already"):
            leader.check_peer(impostor)
        assert victim.id not in leader.replica.core.doubted


@virtual_time
async def test_votes_of_a_wiped_node_do_not_make_a_leader_that_lacks_what_is_committed() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        victim, lagging = cluster.others(leader)
        await lagging.stop()
        await leader.append(b"committed by two")
        leader.crash()
        await wipe(victim)
        await lagging.start()
        sent = cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, VoteRequest | VoteResponse), delay_s=0))
        await asyncio.sleep(5)
        cluster.faults.remove(sent)
        assert not any(node.leads for node in cluster.up())
        await leader.start()
        await cluster.until(lambda: lagging.records() == [b"committed by two"])


@virtual_time
async def test_a_voter_that_was_away_while_two_disks_were_replaced_is_led_by_them_when_nobody_else_is_left() -> None:
    async with SimCluster(5) as cluster:
        leader = await cluster.leader()
        first, second, away, fourth = cluster.others(leader)
        await leader.append(b"a")
        await cluster.level()
        away.crash()
        for node in (first, second):
            await wipe(node)
            await cluster.level()
            await readmit(cluster, node)
        leader.crash()
        fourth.crash()
        await away.start()
        await cluster.until(lambda: any(node.leads for node in cluster.up()))


@virtual_time
async def test_a_wiped_node_that_is_removed_and_added_again_can_be_promoted() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"x")
        victim = cluster.others(leader)[0]
        await wipe(victim)
        await cluster.until(lambda: victim.id in leader.replica.core.doubted)
        await remove(cluster, victim)
        await victim.stop()
        await cluster.level()
        again = await add(cluster, int(victim.id[1:]))
        await change(cluster, lambda members: members.promote(again.id))
        assert again.id in voters_of(leader)
