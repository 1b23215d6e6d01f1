"""A scrub sees every frame as the device has it, a piece at a time, and goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.common.config import Limits
from dledger.common.types import Position, TrimPoint
from dledger.log.log_api import Log, ScrubProgress
from dledger.log.segment import writer
from tests.unit.log.harness import Witness, frames_after, opened, segments_of, write_log
from tests.unit.log.test_damage import offset_of, overwrite


async def scrubbed(log: Log, position: int = 1) -> list[Position]:
    """Where each step of a pass ended."""
    steps = [Position(position)]
    while steps[-1] <= log.last.position:
        steps.append(await log.scrub(steps[-1]))
    return steps


async def test_a_pass_finds_every_damaged_frame_of_a_log_in_use(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    async with opened(tmp_path) as log:
        for path, at in zip(segments_of(tmp_path), (0, 7, 20), strict=False):
            overwrite(path, offset_of(at), b"\xff" * 10)
        overwrite(segments_of(tmp_path)[-1], offset_of(2), b"\xff" * 10)
        bases = [segment.name.base_position for segment in log._files.segments]
        await scrubbed(log)
        assert [damaged.first for damaged in log.damaged()] == [bases[0], bases[1] + 7, bases[2] + 20, bases[-1] + 2]


async def test_a_sound_log_is_read_to_its_end_and_beyond_when_it_has_grown(tmp_path: Path) -> None:
    await write_log(tmp_path, 2000, size_bytes=10)
    async with opened(tmp_path) as log:
        witness = Witness(log)
        steps = await scrubbed(log)
        assert steps[-1] == 2001
        assert steps == sorted(set(steps))
        log.append(frames_after(log, 5))
        await witness.all_durable()
        assert (await scrubbed(log, steps[-1]))[-1] == 2006
        assert not log.damaged()


async def test_a_log_that_begins_far_within_its_first_segment_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FIRST_SEGMENT_BYTES", 1 << 20)  # one segment holds all of it
    async with opened(tmp_path, limits=Limits(segment_max_bytes=8 << 20)) as log:
        witness = Witness(log)
        frames = frames_after(log, 1500)
        log.append(frames)
        await witness.all_durable()
        await log.trim(TrimPoint(frames[1199].header.point, frames[1199].header.end_index))
        overwrite(segments_of(tmp_path)[0], offset_of(1299), b"\xff" * 10)
        steps = await scrubbed(log, log.state.start.position + 1)
        assert steps[-1] == 1501
        assert [damaged.first for damaged in log.damaged()] == [1300]


async def test_an_empty_log_is_done_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        assert await log.scrub(Position(1)) == 1
        assert not log.damaged()


async def test_where_a_pass_stands_survives_a_restart_and_a_bad_file_begins_anew(tmp_path: Path) -> None:
    progress = ScrubProgress(Position(7), 1234)
    async with opened(tmp_path) as log:
        assert await log.scrub_progress() is None
        await log.keep_scrub_progress(progress)
    async with opened(tmp_path) as log:
        assert await log.scrub_progress() == progress
    overwrite(tmp_path / "scrub", 26, b"\xff")
    async with opened(tmp_path) as log:
        assert await log.scrub_progress() is None
