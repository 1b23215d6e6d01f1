"""Append, group commit, roll, read: what a log that nothing breaks does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dledger.common.config import Limits
from dledger.common.errors import Code, DLedgerError, OutOfRange
from dledger.common.types import Durability, Index, Position
from dledger.log.frame.frame import MAX_FRAMES_READ, ControlKind
from dledger.log.segment import segment_files, writer
from tests.unit.log.harness import (
    MEMBERS,
    SMALL,
    FaultyDisk,
    Witness,
    abandon,
    all_frames,
    control_frame,
    frames_after,
    open_at,
    opened,
    segments_of,
    write_log,
)


async def test_what_was_appended_is_read_from_the_files_byte_for_byte(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        frames = frames_after(log, 20)
        log.append(frames)
        assert [frame.raw for frame in await all_frames(log)] == [frame.raw for frame in frames]


async def test_a_frame_can_be_read_before_it_is_durable(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.hold_syncs = asyncio.Event()
    async with opened(tmp_path, disk) as log:
        frames = frames_after(log, 1)
        log.append(frames)
        assert log.cached(Position(1), 1000) == frames
        assert log.durable_position == 0
        disk.hold_syncs.set()


async def test_what_arrives_during_a_sync_rides_on_the_next(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    disk.hold_syncs = asyncio.Event()
    for frame in frames_after(log, 50):
        log.append([frame])
    disk.hold_syncs.set()
    await witness.all_durable()
    assert witness.durable == [1, 50]
    await log.close()


async def test_segments_roll_and_read_as_one_log(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    assert len(segments_of(tmp_path)) > 3
    async with opened(tmp_path) as log:
        assert [frame.header.position for frame in await all_frames(log)] == list(range(1, 301))


async def test_one_append_may_cross_several_segments(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.append(frames_after(log, 300))
        assert len(segments_of(tmp_path)) > 3
        assert len(await all_frames(log)) == 300


async def test_a_segment_rolls_at_its_number_of_frames_too(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=Limits(segment_max_frames=10)) as log:
        log.append(frames_after(log, 35))
        assert len(segments_of(tmp_path)) == 4


async def test_a_frame_larger_than_a_segment_gets_one_that_fits(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.append(frames_after(log, 1, size_bytes=3 * SMALL.segment_max_bytes))
        log.append(frames_after(log, 3))
        assert len(await all_frames(log)) == 4


async def test_control_frames_alone_can_fill_a_segment(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=Limits(segment_max_frames=2)) as log:
        for _ in range(7):
            log.append([control_frame(log.last, log.state.next_index, ControlKind.PRODUCER)])
        log.append(frames_after(log, 1))
        assert (await log.frame_of(Index(0))).header.position == 8
    async with opened(tmp_path) as log:
        assert log.last.position == 8


@pytest.mark.parametrize("index", [0, 1, 57, 149, 298, 299])
async def test_a_record_is_found_by_its_index(tmp_path: Path, index: int) -> None:
    await write_log(tmp_path, 300)
    async with opened(tmp_path) as log:
        assert (await log.frame_of(Index(index))).header.base_index == index


async def test_a_record_behind_the_last_is_out_of_range(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.append(frames_after(log, 3))
        with pytest.raises(OutOfRange):
            await log.frame_of(Index(3))


async def test_reading_behind_the_end_gives_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        assert await log.read(Position(1), 1000) == []


async def test_reading_before_the_start_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        with pytest.raises(DLedgerError) as refused:
            await log.read(Position(0), 1000)
    assert refused.value.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN


async def test_every_point_is_known(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        frames = frames_after(log, 150)
        log.append(frames)
        log._cache.truncate(0)
        points = [await log.point_at(Position(each)) for each in (0, 1, 77, 150)]
        assert points == [log.state.start, *(frames[each - 1].header.point for each in (1, 77, 150))]


async def test_the_cache_keeps_the_newest_within_its_limit(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=Limits(tail_cache_bytes=20_000)) as log:
        log.append(frames_after(log, 100))
        assert log.cached(Position(100), 1000)
        assert log.cached(Position(1), 1000) is None


async def test_reads_give_about_as_much_as_was_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=Limits()) as log:
        log.append(frames_after(log, 50, size_bytes=1000))
        log._cache.truncate(0)
        assert [len(await log.read(Position(10), size)) for size in (1, 2500, 5000)] == [1, 2, 4]


async def test_a_read_gives_no_more_small_frames_than_one_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FIRST_SEGMENT_BYTES", 1 << 20)  # one segment holds all of it
    async with opened(tmp_path, limits=Limits(tail_cache_bytes=0)) as log:
        log.append(frames_after(log, MAX_FRAMES_READ + 10, size_bytes=1))
        read = await log.read(Position(2), 1 << 30)
        assert [read[0].header.position, read[-1].header.position] == [2, 1 + MAX_FRAMES_READ]


async def test_many_segments_are_read_with_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_files, "MAX_OPEN_SEGMENTS", 8)
    monkeypatch.setattr(segment_files, "MAX_INDEXED_SEGMENTS", 20)
    await write_log(tmp_path, 200, size_bytes=8000)
    async with opened(tmp_path) as log:
        for _ in range(2):
            assert len(await all_frames(log)) == 200
            segments = log._files.segments
            assert len(segments) > 60
            assert sum(segment.handle is not None for segment in segments) <= 9
            assert sum(segment.index is not None for segment in segments) <= 21


@pytest.mark.parametrize("durability", [Durability.INTERVAL, Durability.NONE])
async def test_weaker_durabilities_count_what_is_written(tmp_path: Path, durability: Durability) -> None:
    disk = FaultyDisk()
    disk.hold_syncs = asyncio.Event()
    log = await open_at(tmp_path, disk, durability=durability)
    witness = Witness(log)
    log.append(frames_after(log, 3))
    await witness.all_durable()
    assert log.durable_position == 3
    disk.hold_syncs.set()
    await log.close()


@pytest.mark.parametrize("durability", list(Durability))
async def test_a_clean_stop_is_told_from_a_crash_with_every_durability(tmp_path: Path, durability: Durability) -> None:
    for crash in (False, True, False):
        log = await open_at(tmp_path, durability=durability)
        Witness(log)
        log.append(frames_after(log, 200))
        await (abandon(log) if crash else log.close())
        reopened = await open_at(tmp_path, durability=durability)
        assert reopened.recovery.clean_stop is not crash
        await reopened.close()


async def test_the_commit_hint_survives_and_never_passes_the_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.append(frames_after(log, 3))
        log.set_commit_hint(Position(2))
        log.set_commit_hint(Position(1))
    async with opened(tmp_path) as log:
        assert log.commit_hint == 2


async def test_the_initial_members_are_kept_over_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    async with opened(tmp_path) as log:
        assert log.state.members == MEMBERS


async def test_a_control_frame_that_cannot_be_read_is_refused_unwritten(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        good = frames_after(log, 1)
        last = good[0].header
        bad = control_frame(last.point, last.end_index, ControlKind.NO_OP)
        unknown = bad.header._replace(attributes=99)
        bad.header = unknown
        with pytest.raises(DLedgerError):
            log.append([*good, bad])
        assert log.last.position == 0
        log.append(frames_after(log, 1))
