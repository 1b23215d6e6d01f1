"""Without fsync: what was told as durable is not synced yet, and a seal must not go by it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from dledger.common.config import Limits
from dledger.common.types import Durability, Position
from dledger.log.log_api import Damaged
from tests.simulation.disk import DiskMood, SimDisk
from tests.simulation.platter import Platter
from tests.support.virtual_time import settle, virtual_time
from tests.unit.log.harness import Witness, all_frames, frames_after, open_at

DIRECTORY = Path("/data/log")
LIMITS = Limits(segment_max_frames=10)


@virtual_time
async def test_a_repair_seals_no_segment_whose_successor_a_power_cut_may_take_away() -> None:
    platter, mood = Platter(Random(0)), DiskMood()
    platter.mkdir(str(DIRECTORY.parent))
    disk = SimDisk(platter, mood, "boot")
    log = await open_at(DIRECTORY, disk, LIMITS, durability=Durability.INTERVAL)
    Witness(log)
    for _ in range(5):
        log.append(frames_after(log, 5))
        await asyncio.sleep(1)
    await log._sealer.drain()
    good = await all_frames(log)
    rotten = platter.find(log._files.segments[0].path)
    assert rotten is not None
    rotten.spoil(4096 + 300, b"\x55" * 8)
    log._cache.truncate(Position(0))
    with pytest.raises(Damaged) as found:
        await log.read(Position(2), 1)
    damaged = found.value.range
    active = log._files.active
    log._preparer._ready = None  # the next segment is made as it is needed: its size is on no disk yet
    for frame in frames_after(log, 8):
        log.append([frame])
    assert log._files.active is not active
    mood.sync_s = (0.0, 0.001)
    await settle()
    assert log._commit.synced_sequence < log._files.active.name.base_position <= log.durable_position
    await log.repair(damaged, [each for each in good if damaged.first <= each.header.position <= damaged.last])
    await asyncio.sleep(0.012)
    assert not active.sealed, "its trailer says that the next segment is on the disk"
    await log.close()
