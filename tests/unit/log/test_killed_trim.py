"""A process that is killed in the middle of a trim leaves in the page cache what no disk has; then the power goes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest

from dledger.common.config import Limits
from dledger.common.errors import DLedgerError
from dledger.common.types import Position, TrimPoint
from dledger.log.file_log import FileLog
from tests.simulation.disk import DiskMood, SimDisk, Trap
from tests.simulation.platter import Platter
from tests.support.virtual_time import virtual_time
from tests.unit.log.harness import Witness, abandon, frames_after, open_at

DIRECTORY = Path("/data/log")
LIMITS = Limits(segment_max_frames=10)
FRAMES, TRIMMED_TO = 45, 30
OPERATIONS = range(12)
"""More than a trim has; 0 is its first sync, whose pages look clean and never reached the disk."""


async def opened(platter: Platter, mood: DiskMood) -> FileLog:
    platter.mkdir("/data")
    log = await open_at(DIRECTORY, SimDisk(platter, mood, "boot"), LIMITS)
    log.set_callbacks(lambda _: None, lambda _: None)
    return log


async def filled(platter: Platter, mood: DiskMood) -> FileLog:
    log = await opened(platter, mood)
    witness = Witness(log)
    for _ in range(FRAMES // 5):
        log.append(frames_after(log, 5))
    await witness.all_durable()
    await log._sealer.drain()
    return log


@pytest.mark.parametrize("operation", OPERATIONS)
@virtual_time
async def test_a_log_opens_whole_after_kill_start_and_power_cut(operation: int) -> None:
    for seed in range(10):
        platter, mood = Platter(Random(seed)), DiskMood()
        log = await filled(platter, mood)
        last = log.last
        frame = (await log.read(Position(TRIMMED_TO), 1))[0].header
        mood.trap = Trap(operation, lambda: None) if operation else None
        mood.fails_next_sync = not operation
        with contextlib.suppress(DLedgerError):
            await log.trim(TrimPoint(frame.point, frame.end_index))
        mood.mend()
        await abandon(log)
        platter.kill()
        again = await opened(platter, mood)
        await abandon(again)
        platter.kill()
        platter.crash()
        survivor = await opened(platter, mood)
        assert survivor.last == last
        assert survivor.state.start.position <= TRIMMED_TO
        kept = await survivor.read(Position(survivor.state.start.position + 1), 1 << 20)
        assert kept[-1].header.position > survivor.state.start.position
        await survivor.close()
