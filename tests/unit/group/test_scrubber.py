"""What is suspected is looked at first, at once, and then left; a pass is over when its period is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger.common.config import Limits, Timings
from dledger.common.types import NodeId, Position, TrimPoint
from dledger.group.context import GroupContext
from dledger.group.repair.scrubber import Scrubber
from dledger.log.file_log import FileLog
from dledger.log.log_api import ScrubProgress
from dledger.log.segment import writer
from dledger.metrics.group import GroupMetrics
from tests.simulation.cluster import SCRUB_PERIOD_S
from tests.simulation.process import in_world
from tests.unit.group.rot import rotting, until
from tests.unit.log.harness import CarelessDisk, Witness, frames_after, open_at

SUSPECTED = Position(1300)
HOUR_MS = 3_600_000


async def test_also_where_the_log_begins_far_within_its_first_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FIRST_SEGMENT_BYTES", 1 << 20)  # one segment holds all of it
    log = await open_at(tmp_path, CarelessDisk(), Limits(segment_max_bytes=8 << 20))
    witness = Witness(log)
    frames = frames_after(log, 1500)
    log.append(frames)
    await witness.all_durable()
    await log.trim(TrimPoint(frames[1199].header.point, frames[1199].header.end_index))
    steps, looked_at = await steps_of(log)
    assert looked_at > SUSPECTED
    assert steps == 3
    await log.close()


async def steps_of(log: FileLog) -> tuple[int, Position]:
    """How many were made until the scrub paused, and where it got to."""
    reached: list[Position] = []
    paused = asyncio.Event()
    scrub, progress = log.scrub, log.scrub_progress

    async def noted(position: Position) -> Position:
        reached.append(await scrub(position))
        return reached[-1]

    async def then() -> Any:
        paused.set()
        return await progress()

    log.scrub, log.scrub_progress = noted, then  # type: ignore[method-assign]
    context = SimpleNamespace(
        log=log,
        group="default",
        config=SimpleNamespace(timings=Timings()),
        metrics=GroupMetrics("default", NodeId("n0")),
        wall_clock_ms=lambda: 0,
        watch_task=lambda _: None,
    )
    scrubber = Scrubber(cast("GroupContext", context))
    scrubber.suspect([SUSPECTED])
    scrubber.start()
    async with asyncio.timeout(30):
        await paused.wait()
    scrubber.stop()
    return len(reached), reached[-1]


@in_world
async def test_a_pass_that_began_in_the_future_is_over_in_time() -> None:
    """So it seems when the wall clock was put back while the node was down."""
    async with rotting(appends=600) as (_, (_, patient, *_)):
        ahead = ScrubProgress(Position(1), patient.wall_clock_ms() + HOUR_MS)
        await patient.ask(lambda: patient.replica.log.keep_scrub_progress(ahead))
        patient.crash(power=False)
        await patient.start()
        await until(lambda: patient.replica.metrics.scrub_passes > 0, within_s=2 * SCRUB_PERIOD_S)
