"""A leader whose wall clock is wrong stamps no record with a time that the others will not reach soon."""

from __future__ import annotations

import asyncio

import pytest

from dledger.group import gauges
from dledger.raft.leadership import MAX_STAMP_LEAD_MS
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import virtual_time

TEN_YEARS_MS = 10 * 365 * 86_400_000


async def stamp_of_an_append(leader: SimNode) -> int:
    return (await leader.append(b"x")).timestamp_ms


@virtual_time
async def test_a_clock_that_is_years_ahead_stamps_what_a_majority_will_soon_reach() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        right_ms = await stamp_of_an_append(leader)
        leader.clock_offset_ms += TEN_YEARS_MS
        wrong_ms = await stamp_of_an_append(leader)
        assert right_ms <= wrong_ms <= right_ms + MAX_STAMP_LEAD_MS + 1_000
        await leader.stop()
        successor = await cluster.leader()
        assert await stamp_of_an_append(successor) <= wrong_ms + 5_000, "the wrong time is not kept"


@virtual_time
async def test_a_leader_knows_the_others_clocks_from_their_votes() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        right_ms = await stamp_of_an_append(leader)
        for other in cluster.others(leader):
            other.clock_offset_ms += TEN_YEARS_MS
        await leader.stop()
        successor = await cluster.leader()
        assert await stamp_of_an_append(successor) > right_ms + TEN_YEARS_MS, "a majority has that time"
        assert successor.replica.core.leadership is not None


@virtual_time
async def test_a_clock_that_is_behind_stamps_its_own_time() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        for other in cluster.others(leader):
            other.clock_offset_ms += TEN_YEARS_MS
        own_ms = await stamp_of_an_append(leader)
        assert await stamp_of_an_append(leader) < own_ms + TEN_YEARS_MS


@virtual_time
async def test_a_leader_whose_clock_is_ahead_of_the_others_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        leader.clock_offset_ms = TEN_YEARS_MS
        await asyncio.sleep(5)
        said = [record for record in caplog.records if "clock is ahead" in record.message]
        assert len(said) == 1
        assert said[0].ahead_ms == pytest.approx(TEN_YEARS_MS, abs=5)  # type: ignore[attr-defined]


@virtual_time
async def test_a_clock_that_is_ahead_is_a_metric_of_its_leader_until_it_is_set_right() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        leader.clock_offset_ms = TEN_YEARS_MS
        await asyncio.sleep(5)
        gauges.refresh(leader.replica)
        assert leader.replica.metrics.clock_ahead_s == pytest.approx(TEN_YEARS_MS / 1000, abs=1)
        leader.clock_offset_ms = 0
        await asyncio.sleep(5)
        gauges.refresh(leader.replica)
        assert leader.replica.metrics.clock_ahead_s == 0


@virtual_time
async def test_a_node_that_leads_no_more_tells_of_no_clock() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        leader.clock_offset_ms = TEN_YEARS_MS
        await asyncio.sleep(5)
        await leader.replica.handover.transfer(None)
        assert leader.replica.retention.clocks.clock_ahead_ms == 0


@virtual_time
async def test_a_log_with_a_time_that_the_clocks_have_not_reached_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """A single voter believes its own clock: nobody tells it another time."""
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        leader.clock_offset_ms = TEN_YEARS_MS
        await stamp_of_an_append(leader)
        leader.clock_offset_ms = 0
        await asyncio.sleep(5)
        said = [record for record in caplog.records if "the last record's time is ahead" in record.message]
        assert len(said) == 1
        assert said[0].ahead_ms == pytest.approx(TEN_YEARS_MS, abs=10_000)  # type: ignore[attr-defined]


@virtual_time
async def test_clocks_that_agree_are_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        leader.clock_offset_ms = MAX_STAMP_LEAD_MS // 2
        await stamp_of_an_append(leader)
        leader.clock_offset_ms = 0
        await asyncio.sleep(5)
        assert not [record for record in caplog.records if "ahead" in record.message]
