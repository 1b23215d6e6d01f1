"""A disk that fills up, and one that does not come back."""

from __future__ import annotations

import asyncio
import logging

import pytest

from dledger.common.config import MIB
from dledger.common.errors import Code, DiskFull, TransferFailed
from dledger.common.types import Consistency, DiskState, NodeId, PreferredLeader
from tests.support.cluster import SimCluster, SimNode, outcome
from tests.support.virtual_time import virtual_time
from tests.unit.group.logs import HungLog


def leave_free(node: SimNode, free_bytes: int) -> None:
    node.log.free_space_bytes = free_bytes


async def fill_all(cluster: SimCluster, free_bytes: int = 0) -> None:
    """Nobody could take over."""
    for node in cluster.up():
        leave_free(node, free_bytes)
    await cluster.until(lambda: all(state_of(node) is DiskState.FULL for node in cluster.up()), within_s=2)


def state_of(node: SimNode) -> DiskState:
    return node.replica.disk_watch.state


# Space ---------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_below_the_watermark_appends_are_refused_before_the_device_says_so() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"before")
        await fill_all(cluster, 100 * MIB)
        with pytest.raises(DiskFull, match=r"100 MiB left.*disk_refuse_free_bytes"):
            await leader.append(b"refused")
        assert leader.committed() == [b"before"]


@virtual_time
async def test_reads_and_elections_go_on_while_every_disk_is_full() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"before")
        await cluster.level()
        for node in cluster.up():
            leave_free(node, 0)
        await asyncio.sleep(2)
        leader.crash()
        leader = await cluster.leader()
        assert (await leader.get(0)).value == b"before"


@virtual_time
async def test_with_room_again_appends_are_taken_again_by_itself() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await fill_all(cluster)
        leave_free(leader, 1 << 40)
        took_s = await cluster.until(lambda: state_of(leader) is DiskState.OK, within_s=2)
        assert took_s <= 1.5
        assert (await leader.append(b"after")).base_index == 0


@virtual_time
async def test_a_full_disk_can_still_be_trimmed() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        for _ in range(50):
            await leader.append(b"x")
        await fill_all(cluster)
        assert (await leader.replica.retention.trim(30)).first_index == 29


@virtual_time
async def test_what_the_device_says_stands_whatever_the_watermark_says_until_room_is_proven() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        leader.log.has_no_room = True
        assert await outcome(leader.append(b"x")) is Code.DISK_FULL
        assert state_of(leader) is DiskState.FULL
        await asyncio.sleep(10)
        assert state_of(leader) is DiskState.FULL
        leader.log.has_no_room = False
        await cluster.until(lambda: state_of(leader) is DiskState.OK, within_s=2)
        await leader.append(b"x")


@virtual_time
async def test_a_node_that_starts_on_a_full_device_knows_it_before_it_writes() -> None:
    async with SimCluster(1, start=[]) as cluster:
        node = cluster[0]
        node.log.has_no_room = True
        await node.start()
        await cluster.until(lambda: state_of(node) is DiskState.FULL, within_s=2)


@virtual_time
async def test_a_leader_whose_device_is_full_hands_over_before_anything_else_helps() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        leader.log.has_no_room = True
        assert await outcome(leader.append(b"x")) is Code.DISK_FULL
        assert await cluster.until(lambda: not leader.leads) < 1.7, "nobody can append meanwhile"
        await (await cluster.leader()).append(b"x")


@virtual_time
async def test_a_full_disk_takes_no_new_producers_and_what_makes_room() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        for _ in range(30):
            await leader.append(b"x")
        await fill_all(cluster)
        for ask in (leader.replica.appender.new_producer, lambda: leader.replica.appender.append_records([b"x"])):
            with pytest.raises(DiskFull):
                await ask()
        with pytest.raises(DiskFull):
            await leader.replica.appender.named_producer("job")
        await leader.replica.settings.change(lambda settings: settings._replace(retention_max_bytes=1))
        await leader.replica.members.add(NodeId("n9"), "n9:1")
        await cluster.until(lambda: leader.first_index > 0, within_s=3)


@virtual_time
async def test_each_change_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dledger.group.disk_watch")
    async with SimCluster(1) as cluster:
        node = await cluster.leader()
        for free_bytes in (1_500 * MIB, 1_500 * MIB, 0, 1 << 40):
            leave_free(node, free_bytes)
            await asyncio.sleep(5)
        assert [(r.state, r.levelno) for r in caplog.records] == [  # type: ignore[attr-defined]
            ("low", logging.WARNING),
            ("full", logging.ERROR),
            ("ok", logging.INFO),
        ]
        assert node.replica.metrics.disk_state == 0
        assert node.replica.metrics.disk_free_bytes == 1 << 40


@virtual_time
async def test_a_leader_with_a_full_disk_hands_over_to_one_with_room() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        full, roomy = sorted(cluster.others(leader), key=lambda node: node.id)
        leave_free(full, 0)
        await cluster.until(lambda: state_of(full) is DiskState.FULL, within_s=2)
        await asyncio.sleep(0.2)
        leave_free(leader, 0)
        assert await cluster.until(lambda: roomy.leads) < 2.7, "a second of it until the watermark is looked at"
        await cluster.leader()
        await roomy.append(b"x")
        await asyncio.sleep(60)
        assert roomy.leads, "nor does it come back while it is full"


@virtual_time
async def test_a_leader_with_a_full_disk_stays_while_nobody_has_room_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        for node in cluster.others(leader):
            leave_free(node, 0)
        await asyncio.sleep(2)
        leave_free(leader, 0)
        term = leader.replica.term
        await asyncio.sleep(60)
        assert (leader.leads, leader.replica.term) == (True, term)
        said = [record for record in caplog.records if "nobody else can take" in record.message]
        why = "; ".join(f"{node.id} has a full disk" for node in cluster.others(leader))
        assert [record.why for record in said] == [why]  # type: ignore[attr-defined]


@virtual_time
async def test_no_handover_chooses_a_node_with_a_full_disk() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        full, other = sorted(cluster.others(leader), key=lambda node: node.id)
        leave_free(full, 0)
        await asyncio.sleep(2)
        handover = leader.replica.handover
        with pytest.raises(TransferFailed, match=f"{full.id} has a full disk"):
            await handover.transfer(full.id)
        await leader.replica.settings.set_preferred([PreferredLeader(full.id, 9)])
        await asyncio.sleep(30)
        assert leader.leads
        leave_free(full, 1 << 40)
        await cluster.until(lambda: full.leads)
        leave_free(leader, 0)
        await asyncio.sleep(2)
        await full.stop()
        assert other.leads


@virtual_time
async def test_who_is_told_to_take_it_with_a_disk_that_has_just_filled_up_does_not() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        full = cluster.others(leader)[0]
        full.replica.core.disk = DiskState.FULL  # the leader has not heard of it yet
        with pytest.raises(TransferFailed, match="did not take"):
            await leader.replica.handover.transfer(full.id)
        await leader.append(b"goes on")


# Hung ----------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_leader_whose_disk_hangs_gives_up_within_a_second_and_another_leads() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"before")
        hung = HungLog.of(leader.log)
        pending = asyncio.ensure_future(outcome(leader.append(b"under way")))
        took_s = await cluster.until(lambda: not leader.leads, within_s=2)
        assert took_s < 1
        assert state_of(leader) is DiskState.HUNG
        took_s += await cluster.until(lambda: any(node.leads for node in cluster.others(leader)), within_s=2)
        assert took_s < 1.5
        new = await cluster.leader()
        assert new is not leader
        await new.append(b"after")
        hung.come_back()
        await cluster.level()
        result = await pending
        assert new.committed() == [b"before", *([] if result is Code.NOT_LEADER else [b"under way"]), b"after"]


@virtual_time
async def test_disks_that_all_hang_together_cost_nobody_the_leadership() -> None:
    """As those on one device do, or under one host, when they are asked for too much."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"before")
        term = leader.replica.core.term
        hung = [HungLog.of(node.log) for node in cluster.nodes.values()]
        pending = asyncio.ensure_future(leader.append(b"under way"))
        await cluster.until(
            lambda: all(state_of(node) is DiskState.HUNG for node in cluster.nodes.values()), within_s=1
        )
        await asyncio.sleep(2)
        for log in hung:
            log.come_back()
            await asyncio.sleep(0.1)  # one after the other
        await pending
        assert leader.leads
        assert leader.replica.core.term == term


@virtual_time
async def test_a_leader_whose_disk_does_not_come_back_with_the_others_gives_up() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        hung = {node.id: HungLog.of(node.log) for node in cluster.nodes.values()}
        pending = asyncio.ensure_future(outcome(leader.append(b"under way")))
        await asyncio.sleep(2)
        assert leader.leads
        for node in cluster.others(leader):
            hung[node.id].come_back()
        await cluster.until(lambda: any(node.leads for node in cluster.others(leader)), within_s=1)
        hung[leader.id].come_back()
        await cluster.level()
        await pending


@virtual_time
async def test_a_leader_whose_disk_hangs_stays_where_too_few_others_are_there_to_elect_one() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        hung = [HungLog.of(node.log) for node in (leader, cluster.others(leader)[0])]
        pending = asyncio.ensure_future(leader.append(b"under way"))
        await asyncio.sleep(2)
        assert state_of(leader) is DiskState.HUNG
        assert leader.leads
        for log in hung:
            log.come_back()
        await pending
        assert leader.leads


@virtual_time
async def test_a_node_whose_disk_hangs_does_not_stand_and_does_when_it_is_back() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        sick = cluster.others(leader)[0]
        hung = HungLog.of(sick.log)
        await leader.append(b"x")
        await cluster.until(lambda: state_of(sick) is DiskState.HUNG, within_s=2)
        await leader.replica.handover.transfer(cluster.others(leader)[1].id)
        for node in cluster.others(sick):
            assert state_of(node) is DiskState.OK
        hung.come_back()
        await cluster.until(lambda: state_of(sick) is DiskState.OK, within_s=2)
        await cluster.level()
        await asyncio.sleep(0.2)  # a heartbeat's answer tells the leader
        leader = await cluster.leader()
        await leader.replica.handover.transfer(sick.id)
        assert (await cluster.leader()) is sick


@virtual_time
async def test_a_disk_that_is_slow_and_not_hung_keeps_its_leader() -> None:
    async with SimCluster(3, sync_delay_ms=500) as cluster:
        leader = await cluster.leader()
        for _ in range(10):
            await leader.append(b"x")
        assert leader.leads
        assert state_of(leader) is DiskState.OK


@virtual_time
async def test_committed_reads_go_on_at_a_node_whose_disk_hangs() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"x")
        HungLog.of(leader.log)
        pending = asyncio.ensure_future(outcome(leader.append(b"y")))
        await cluster.until(lambda: not leader.leads, within_s=2)
        assert (await leader.get(0, Consistency.COMMITTED)).value == b"x"
        await pending
