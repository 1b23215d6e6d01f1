"""A disk that fills up, and one that does not come back."""

from __future__ import annotations

import asyncio
import logging

import pytest

from dledger.config import MIB
from dledger.errors import Code, DiskFull
from dledger.server.disk_watch import DiskState
from dledger.types import Consistency
from tests.support.cluster import SimCluster, SimNode, outcome
from tests.support.virtual_time import virtual_time
from tests.unit.server.logs import HungLog


def leave_free(node: SimNode, free_bytes: int) -> None:
    node.log.free_space_bytes = free_bytes


def state_of(node: SimNode) -> DiskState:
    return node.replica.disk_watch.state


# Space ---------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_below_the_watermark_appends_are_refused_before_the_device_says_so() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"before")
        leave_free(leader, 100 * MIB)
        await cluster.until(lambda: state_of(leader) is DiskState.FULL, within_s=2)
        with pytest.raises(DiskFull, match="100 MiB left"):
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
        leave_free(leader, 0)
        await cluster.until(lambda: state_of(leader) is DiskState.FULL, within_s=2)
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
        leave_free(leader, 0)
        await cluster.until(lambda: state_of(leader) is DiskState.FULL, within_s=2)
        assert (await leader.replica.retention.trim(30)).first_index == 29


@virtual_time
async def test_each_change_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dledger.server.disk_watch")
    async with SimCluster(1) as cluster:
        node = await cluster.leader()
        for free_bytes in (500 * MIB, 500 * MIB, 0, 1 << 40):
            leave_free(node, free_bytes)
            await asyncio.sleep(5)
        assert [(r.state, r.levelno) for r in caplog.records] == [  # type: ignore[attr-defined]
            ("low", logging.WARNING),
            ("full", logging.ERROR),
            ("ok", logging.INFO),
        ]
        assert node.replica.metrics.disk_state == 0
        assert node.replica.metrics.disk_free_bytes == 1 << 40


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
