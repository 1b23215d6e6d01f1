"""A group with a state machine: what is not trimmed, how large records may be, and who is fit to lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dledger.common.config import MAX_MACHINE_RECORD_BYTES, MIB, Limits
from dledger.common.errors import Code, DLedgerError, Unsupported
from dledger.common.types import DEFAULT_GROUP, MAX_INDEX, NodeId, PreferredLeader, Term
from dledger.group.machine_link import MachineStatus
from dledger.raft.messages import MachineReport
from dledger.raft.state import VoteBlocker
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import virtual_time


def level(node: SimNode, confirmed_id: int = -1) -> Callable[[], MachineStatus]:
    """A state machine that has applied whatever is committed."""
    return lambda: MachineStatus(node.commit_index + 1, 1, confirmed_id)


async def with_machine(cluster: SimCluster, confirmed_id: int = -1) -> SimNode:
    leader = await cluster.leader()
    await leader.replica.settings.set_machine("counter")
    for node in cluster.up():
        node.replica.machine.attach(level(node, confirmed_id))
    return leader


async def fill(leader: SimNode, count: int) -> None:
    for at in range(count):
        await leader.append(b"%d" % at)


@virtual_time
async def test_a_trim_by_hand_takes_nothing_that_no_checkpoint_replaces() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await with_machine(cluster, confirmed_id=30)
        await fill(leader, 60)
        with pytest.raises(Unsupported, match="state machine"):
            await leader.replica.retention.trim(31)


@virtual_time
async def test_no_age_and_no_size_goes_beyond_the_confirmed_checkpoint() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await with_machine(cluster)
        await leader.replica.retention.set(1, 1)
        await fill(leader, 60)
        await asyncio.sleep(5)
        assert leader.first_index == 0
        for node in cluster.up():
            node.replica.machine.attach(level(node, 30))
        await cluster.until(lambda: all(20 < node.first_index <= 30 for node in cluster.up()))
        await asyncio.sleep(5)
        assert leader.first_index <= 30


@virtual_time
async def test_a_node_whose_state_is_being_restored_carries_out_no_trim_until_it_is_there() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await with_machine(cluster, confirmed_id=30)
        behind = cluster.others(leader)[0]
        behind.replica.machine.attach(MachineStatus)
        await fill(leader, 60)
        await cluster.until(lambda: leader.first_index > 0)
        await asyncio.sleep(2)
        assert behind.first_index == 0
        behind.replica.machine.attach(level(behind, 30))
        await cluster.until(lambda: behind.first_index == leader.first_index)


@virtual_time
async def test_a_group_without_a_state_machine_is_asked_nothing_of_one() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 40)
        assert leader.replica.machine.trim_limit == MAX_INDEX
        await leader.replica.retention.trim(30)
        assert leader.first_index > 20


@virtual_time
async def test_records_of_a_state_machine_may_be_larger_than_the_users() -> None:
    limits = Limits(max_record_bytes=1_000, max_batch_bytes=2_000)
    async with SimCluster(3, limits=limits) as cluster:
        leader = await cluster.leader()
        with pytest.raises(DLedgerError) as refused:
            await leader.append(bytes(1_001))
        assert refused.value.code is Code.RECORD_TOO_LARGE
        await with_machine(cluster)
        await leader.append(bytes(MAX_MACHINE_RECORD_BYTES))
        await cluster.level()
        with pytest.raises(DLedgerError) as refused:
            await leader.append(bytes(MAX_MACHINE_RECORD_BYTES + 1))
        assert refused.value.code is Code.RECORD_TOO_LARGE


@virtual_time
async def test_a_follower_takes_a_large_record_in_the_same_push_as_the_settings_that_allow_it() -> None:
    limits = Limits(max_record_bytes=1_000, max_batch_bytes=2_000, push_message_bytes=4 * MIB)
    async with SimCluster(3, limits=limits) as cluster:
        leader = await cluster.leader()
        away = cluster.others(leader)[0]
        away.crash()
        await with_machine(cluster)
        await leader.append(bytes(2 * MIB))
        await away.start()
        await cluster.level()


# Leading --------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_node_whose_state_machine_lags_is_not_given_the_leadership() -> None:
    async with SimCluster(3, limits=Limits(max_transfer_lag_frames=5)) as cluster:
        leader = await with_machine(cluster)
        one, other = cluster.others(leader)
        one.replica.machine.attach(lambda: MachineStatus(1, 1))
        other.replica.machine.attach(MachineStatus)
        await fill(leader, 20)
        await asyncio.sleep(2)
        for node, why in ((one, "records behind"), (other, "has not told lately")):
            with pytest.raises(DLedgerError, match=why) as refused:
                await leader.replica.handover.transfer(node.id)
            assert refused.value.code is Code.FALL_BEHIND_TOO_MUCH
        await leader.replica.settings.set_preferred([PreferredLeader(NodeId(one.id), 5)])
        await asyncio.sleep(6)
        assert leader.leads
        one.replica.machine.attach(level(one))
        await cluster.until(lambda: one.leads)


@virtual_time
async def test_members_are_changed_whatever_the_state_machines_do() -> None:
    async with SimCluster(3) as cluster:
        leader = await with_machine(cluster)
        for node in cluster.others(leader):
            node.replica.machine.attach(MachineStatus)
        await asyncio.sleep(2)
        leadership = leader.replica.core.leadership
        assert leadership is not None
        now_ms = leader.replica.now_ms()
        assert leadership.fit(leader.log.last.position, now_ms) == []
        assert leadership.fit_quorum(leader.log.last.position, now_ms)


@virtual_time
async def test_a_leader_whose_state_machine_does_not_catch_up_hands_over_to_one_that_has() -> None:
    async with SimCluster(3) as cluster:
        leader = await with_machine(cluster)
        await fill(leader, 5)
        lagging, other = cluster.others(leader)
        lagging.replica.machine.attach(lambda: MachineStatus(2, 1))
        other.freeze()
        leader.crash()
        other.thaw()
        if (await cluster.leader()) is not lagging:  # then it takes a step more to make it lead
            other.replica.machine.attach(lambda: MachineStatus(2, 1))
            lagging = other
            other = next(node for node in cluster.up() if node is not lagging)
            other.replica.machine.attach(level(other))
        assert lagging.leads
        await cluster.until(lambda: other.leads, within_s=20)


@virtual_time
async def test_a_leader_serves_once_its_state_machine_has_applied_what_came_before_its_term() -> None:
    async with SimCluster(3) as cluster:
        leader = await with_machine(cluster)
        await fill(leader, 5)
        applied = 4
        for node in cluster.up():
            node.replica.machine.attach(lambda: MachineStatus(applied, 1))
        leader.crash()
        successor = await cluster.leader()
        with pytest.raises(DLedgerError, match="not caught up") as refused:
            successor.replica.machine.check_serving()
        assert refused.value.code is Code.LEADER_NOT_READY
        applied = 5
        successor.replica.machine.check_serving()


@virtual_time
async def test_a_node_whose_state_differs_does_not_lead_until_it_is_built_anew() -> None:
    async with SimCluster(3) as cluster:
        leader = await with_machine(cluster)
        leader.replica.machine.attach(lambda: MachineStatus(is_rebuilding=True))
        await cluster.until(lambda: not leader.leads)
        assert VoteBlocker.STOPPED_MACHINE in leader.replica.core.vote_blockers
        leader.replica.machine.attach(level(leader))
        await cluster.until(lambda: VoteBlocker.STOPPED_MACHINE not in leader.replica.core.vote_blockers)


@virtual_time
async def test_a_report_of_records_that_nobody_was_sent_is_not_believed() -> None:
    async with SimCluster(3) as cluster:
        leader = await with_machine(cluster)
        peer = cluster.others(leader)[0].id
        await asyncio.sleep(2)
        leadership = leader.replica.core.leadership
        assert leadership is not None
        known = leadership.followers[peer].machine
        report = MachineReport(DEFAULT_GROUP, Term(leader.replica.term), 1 << 40, 1, 0, b"")
        leader.replica.on_message(peer, report)
        assert leadership.followers[peer].machine == known
