"""A leader whose wall clock is wrong stamps no record with a time that the others will not reach soon."""

from __future__ import annotations

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
