"""Leadership by hand, and the clean stop that hands it over."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.config import Limits, Timings
from dledger.common.errors import Code, DLedgerError, TransferFailed, UnknownMember, error
from dledger.common.types import DEFAULT_GROUP, NodeId
from dledger.raft.messages import Append, Compare, Message, TakeLeadership
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode, outcome
from tests.support.virtual_time import virtual_time
from tests.unit.group.changes import begin_removal
from tests.unit.group.logs import BrokenLog

TIMINGS = Timings()


async def refusal_of(node: SimNode, target: NodeId | None) -> Code:
    with pytest.raises(DLedgerError) as refusal:
        await node.replica.handover.transfer(target)
    return refusal.value.code


@virtual_time
async def test_without_a_target_the_follower_with_the_smallest_lag_is_taken() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        behind, level = cluster.others(leader)
        cluster.faults.add(Rule(lambda _s, to, m: to == behind.id and isinstance(m, Append), drop_share=1))
        for _ in range(5):
            await leader.append(b"x")
        assert await leader.replica.handover.transfer(None) == level.id


async def with_one_that_stands_still(cluster: SimCluster) -> tuple[SimNode, SimNode, SimNode]:
    """The leader; a follower that is connected, holds everything, and was not heard lately; and another one."""
    leader = await cluster.leader()
    await cluster.level()
    frozen, other = cluster.others(leader)
    if frozen.id > other.id:  # of two that are equally close the lower id would be taken
        frozen, other = other, frozen
    frozen.freeze()
    await asyncio.sleep(TIMINGS.election_timeout_min_ms / 1000)
    assert leader.is_connected(frozen.id)
    return leader, frozen, other


@virtual_time
async def test_the_leadership_does_not_go_to_a_follower_that_stands_still() -> None:
    async with SimCluster(3) as cluster:
        leader, frozen, other = await with_one_that_stands_still(cluster)
        assert await refusal_of(leader, frozen.id) is Code.FALL_BEHIND_TOO_MUCH
        assert await leader.replica.handover.transfer(None) == other.id


@virtual_time
async def test_a_clean_stop_hands_over_to_one_that_answers() -> None:
    async with SimCluster(3) as cluster:
        leader, _, other = await with_one_that_stands_still(cluster)
        await leader.stop()
        assert other.leads


@virtual_time
async def test_a_voter_in_doubt_is_not_handed_the_leadership_and_it_is_said_why() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        doubted, other = cluster.others(leader)
        doubted.crash()
        doubted.wipe()
        await doubted.start()
        await cluster.until(lambda: doubted.id in leader.replica.core.doubted)
        await cluster.level()
        with pytest.raises(TransferFailed, match=f"{doubted.id} is in doubt"):
            await leader.replica.handover.transfer(doubted.id)
        other.crash()
        await cluster.until(lambda: not leader.is_connected(other.id))
        with pytest.raises(
            TransferFailed, match=f"{doubted.id} is in doubt.*{other.id} is not connected|{other.id} is not"
        ):
            await leader.replica.handover.transfer(None)


@virtual_time
async def test_who_was_not_compared_yet_is_waited_for() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Compare), drop_share=1))
        await leader.replica.handover.transfer(cluster.others(leader)[0].id)
        await cluster.until(lambda: any(node.leads for node in cluster.others(leader)))
        new = next(node for node in cluster.others(leader) if node.leads)
        assert await refusal_of(new, leader.id) is Code.LEADER_NOT_READY
        assert await refusal_of(new, None) is Code.LEADER_NOT_READY


@virtual_time
async def test_a_dry_run_says_who_would_lead_and_refuses_what_would_be_refused() -> None:
    async with SimCluster(3) as cluster:
        leader, frozen, other = await with_one_that_stands_still(cluster)
        assert await leader.replica.handover.transfer(None, dry_run=True) == other.id
        with pytest.raises(TransferFailed):
            await leader.replica.handover.transfer(frozen.id, dry_run=True)
        assert leader.leads


@virtual_time
async def test_handing_over_to_oneself_changes_nothing() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        term = leader.replica.term
        assert await leader.replica.handover.transfer(leader.id) == leader.id
        assert leader.replica.term == term


@virtual_time
async def test_a_hundred_handovers_in_a_row_each_cost_appends_a_moment() -> None:
    loop = asyncio.get_running_loop()
    async with SimCluster(5) as cluster:
        leader = await cluster.leader()
        gaps_s = []
        for index in range(100):
            await leader.append(b"%d" % index)
            acked_s = loop.time()
            new_leader = await leader.replica.handover.transfer(None)
            leader = cluster.nodes[NodeId(new_leader)]
            await cluster.until(lambda leader=leader: leader.replica.core.is_ready)  # type: ignore[misc]
            await leader.append(b"after %d" % index)
            gaps_s.append(loop.time() - acked_s)
        assert max(gaps_s) < 0.3
        await cluster.level()
        assert leader.commit_index == 199


@virtual_time
async def test_a_take_that_a_node_finds_after_it_stood_still_is_void_when_the_leader_went_on_meanwhile() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"before")
        await cluster.level()
        target, term = cluster.others(leader)[0], leader.replica.term
        take = TakeLeadership(DEFAULT_GROUP, term, target.log.last.position)
        # The target stands still: what is sent to it arrives at once when it goes on, the TAKE first.
        waiting: list[Message] = []
        frozen = cluster.faults.add(
            Rule(lambda _s, to, m: to == target.id and (waiting.append(m) or True), drop_share=1)  # type: ignore[func-returns-value]
        )
        await leader.append(b"since")
        cluster.faults.remove(frozen)
        for message in (take, *waiting):
            target.on_message(leader.id, message)
        await asyncio.sleep(2)
        assert leader.leads
        assert leader.replica.term == term


@virtual_time
async def test_two_takes_that_arrive_together_are_each_looked_at_once_more_and_no_oftener() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        target = cluster.others(leader)[0]
        for _ in range(2):
            take = TakeLeadership(DEFAULT_GROUP, leader.replica.term, target.log.last.position)
            target.on_message(leader.id, take)
        async with asyncio.timeout(5):  # of virtual time, which two that wait for each other would never let pass
            await cluster.until(lambda: target.leads)
        assert await cluster.leader() is target


@virtual_time
async def test_every_refusal_has_its_name() -> None:
    async with SimCluster(3, limits=Limits(max_transfer_lag_frames=3)) as cluster:
        leader = await cluster.leader()
        follower, gone = cluster.others(leader)
        assert await refusal_of(follower, None) is Code.NOT_LEADER
        assert await refusal_of(leader, NodeId("n9")) is Code.UNKNOWN_MEMBER
        gone.crash()
        for _ in range(5):
            await leader.append(b"x")
        await asyncio.sleep(0.3)
        assert await refusal_of(leader, gone.id) is Code.FALL_BEHIND_TOO_MUCH
        handover = asyncio.ensure_future(leader.replica.handover.transfer(follower.id))
        await asyncio.sleep(0)
        assert await refusal_of(leader, follower.id) is Code.LEADER_TRANSFERRING
        await handover


@virtual_time
async def test_a_target_that_does_not_take_it_leaves_the_leader_leading_and_taking_appends() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        term = leader.replica.term
        cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, TakeLeadership), drop_share=1))
        begun_s = asyncio.get_running_loop().time()
        assert await refusal_of(leader, cluster.others(leader)[0].id) is Code.TAKE_LEADERSHIP_FAILED
        took_s = asyncio.get_running_loop().time() - begun_s
        assert took_s <= (TIMINGS.election_timeout_max_ms + 2 * TIMINGS.heartbeat_interval_ms) / 1000
        await leader.append(b"x")
        assert (leader.leads, leader.replica.term) == (True, term)


@virtual_time
async def test_who_asks_while_a_handover_goes_on_that_its_caller_gave_up_is_refused_by_its_name() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        first, second = cluster.others(leader)
        cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, TakeLeadership), drop_share=1))
        given_up = asyncio.create_task(leader.replica.handover.transfer(first.id))
        await asyncio.sleep(0.01)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert await refusal_of(leader, second.id) is Code.LEADER_TRANSFERRING
        cluster.faults.clear()
        await asyncio.sleep(2)
        assert await leader.replica.handover.transfer(second.id) == second.id


@virtual_time
async def test_a_handover_to_whom_a_queued_change_removes_is_refused_and_the_leader_leads_on() -> None:
    async with SimCluster(3, sync_delay_ms=5) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        leaving = cluster.others(leader)[0]
        removing = await begin_removal(leader, leaving)
        with pytest.raises(UnknownMember, match="not a voter"):
            await leader.replica.handover.transfer(leaving.id)
        await removing
        assert leader.leads
        await leader.append(b"x")


@virtual_time
async def test_a_handover_to_whoever_passes_over_whom_a_queued_change_removes() -> None:
    async with SimCluster(3, sync_delay_ms=5) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        leaving, other = cluster.others(leader)
        assert await leader.replica.handover.transfer(None, dry_run=True) == leaving.id
        removing = await begin_removal(leader, leaving)
        assert await leader.replica.handover.transfer(None) == other.id
        await asyncio.wait([removing])
        removing.exception()  # unknown, as the term is over


@virtual_time
async def test_a_handover_that_finds_the_disk_broken_as_it_writes_what_is_queued_is_refused_at_once() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        leader.submit(b"fills the turn").add_done_callback(lambda lost: lost.exception())
        broken = leader.submit(b"never written")
        BrokenLog.of(leader.log).refusal = error(Code.DISK_ERROR, "broken")
        async with asyncio.timeout(0.01):
            assert await refusal_of(leader, cluster.others(leader)[0].id) is Code.NOT_LEADER
        assert isinstance(broken.exception(), DLedgerError)
        leader.failure = None  # it is what was asked for


@virtual_time
async def test_what_was_pending_at_a_handover_is_acknowledged_or_unknown_and_kept() -> None:
    async with SimCluster(5) as cluster:
        leader = await cluster.leader()
        pending = [asyncio.ensure_future(outcome(leader.append(b"%d" % index))) for index in range(20)]
        await asyncio.sleep(0)
        await leader.replica.handover.transfer(None)
        outcomes = await asyncio.gather(*pending)
        await cluster.level()
        committed = cluster[0].committed()
        for index, result in enumerate(outcomes):
            assert result is Code.TERM_CHANGED or committed.count(b"%d" % index) == 1


@virtual_time
async def test_a_clean_stop_drains_what_is_pending_first() -> None:
    async with SimCluster(3, sync_delay_ms=20) as cluster:
        leader = await cluster.leader()
        pending = [leader.submit(b"%d" % index) for index in range(10)]
        await asyncio.sleep(0)
        await leader.stop()
        assert [(await future).base_index for future in pending] == list(range(10))


@virtual_time
async def test_a_clean_stop_refuses_new_appends_by_its_name() -> None:
    async with SimCluster(3, sync_delay_ms=20) as cluster:
        leader = await cluster.leader()
        leader.submit(b"x")
        await asyncio.sleep(0)
        stopping = asyncio.create_task(leader.stop())
        await asyncio.sleep(0)
        assert await outcome(leader.append(b"y")) is Code.SHUTTING_DOWN
        await stopping


@virtual_time
async def test_a_leader_without_followers_does_not_wait_long_to_stop() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        for follower in cluster.others(leader):
            follower.crash()
        pending = asyncio.ensure_future(outcome(leader.append(b"x")))
        await asyncio.sleep(0.01)
        begun_s = asyncio.get_running_loop().time()
        await leader.stop()
        assert await pending is Code.TERM_CHANGED
        assert asyncio.get_running_loop().time() - begun_s <= 1


@virtual_time
async def test_a_single_server_stops_at_once() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        await leader.append(b"x")
        begun_s = asyncio.get_running_loop().time()
        await leader.stop()
        assert asyncio.get_running_loop().time() - begun_s < 0.01
        await leader.start()
        assert (await (await cluster.leader()).get(0)).value == b"x"
