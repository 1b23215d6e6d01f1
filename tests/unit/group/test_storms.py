"""Whole clusters under faults at random: nothing acknowledged is lost, moved or doubled, and calm brings a leader."""

from __future__ import annotations

import pytest

from tests.support.cluster import SimCluster
from tests.support.virtual_time import virtual_time
from tests.unit.group.logs import DiskLikeLog
from tests.unit.group.storm import Storm


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
@virtual_time
async def test_no_storm_breaks_a_promise(size: int, seed: int) -> None:
    async with SimCluster(size, seed=seed, sync_delay_ms=1) as cluster:
        storm = Storm(cluster, seed)
        await storm.blow(20)
        if size > 2:  # of two, one is mostly down
            assert storm.journal.reads
            assert storm.journal.acknowledged


@pytest.mark.parametrize("seed", range(4))
@virtual_time
async def test_no_storm_breaks_a_promise_when_reads_and_truncations_take_their_time(seed: int) -> None:
    async with SimCluster(3, seed=seed, sync_delay_ms=5) as cluster:
        for node in cluster.nodes.values():
            DiskLikeLog.of(node.log)
        await Storm(cluster, seed).blow(20)
