"""A trim: the log begins exactly there at once, whole segments go from the disk, and whoever reads one may finish."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dledger.common.config import Limits
from dledger.common.errors import Code, CorruptLog, DLedgerError
from dledger.common.types import Index, Position, TrimPoint
from dledger.log.file_log import FileLog
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.segment.segment import FIRST_PAGE_BYTES
from dledger.log.segment.snapshot_file import good_copies
from dledger.log.verify import verify
from tests.unit.log.harness import (
    CarelessDisk,
    FaultyDisk,
    Witness,
    abandon,
    all_frames,
    files_of,
    frames_after,
    open_at,
    opened,
    segments_of,
)

LIMITS = Limits(segment_max_frames=10)


async def ten_a_segment(directory: Path, count: int = 45, disk: CarelessDisk | None = None) -> FileLog:
    """An open log of ``count`` frames, all segments but the last one sealed."""
    log = await open_at(directory, disk or CarelessDisk(), LIMITS)
    witness = Witness(log)
    for _ in range(count // 5):
        log.append(frames_after(log, 5))
    await witness.all_durable()
    await log._sealer.drain()
    return log


async def point(log: FileLog, position: int) -> TrimPoint:
    frame = (await log.read(Position(position), 1))[0].header
    return TrimPoint(frame.point, frame.end_index)


def bases(directory: Path) -> list[int]:
    """The first position of each segment on the disk."""
    return [int(path.stem.split("-")[1]) for path in segments_of(directory)]


async def test_segments_span_all_records_from_the_first_kept(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    assert [(each.base_index, each.end_index) for each in log.segments()] == [
        (0, 10),
        (10, 20),
        (20, 30),
        (30, 40),
        (40, 45),
    ]
    assert all(each.size_bytes > 0 for each in log.segments())
    await log.trim(await point(log, 15))
    first = log.segments()[0]
    assert (first.base_index, first.end_index) == (15, 20)
    await log.close()


async def test_boundaries_lie_between_segments_and_say_what_they_free(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    found = log.boundaries()
    assert [(each.trim.point.position, each.trim.first_index) for each in found] == [
        (10, 10),
        (20, 20),
        (30, 30),
        (40, 40),
    ]
    frames = await all_frames(log)
    assert [each.last_timestamp_ms for each in found] == [frames[at - 1].header.timestamp_ms for at in (10, 20, 30, 40)]
    sizes = [path.stat().st_size for path in segments_of(tmp_path)]
    assert [each.size_bytes for each in found] == [sum(sizes[:at]) for at in range(1, 5)]
    assert log.size_bytes == sum(sizes)
    await log.close()


async def test_boundaries_survive_a_restart(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    before = log.boundaries()
    await log.close()
    async with opened(tmp_path) as reopened:
        assert reopened.boundaries() == before


async def test_boundaries_below_the_start_are_gone(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    before = log.boundaries()
    await log.trim(before[1].trim)
    assert [each.trim for each in log.boundaries()] == [each.trim for each in before[2:]]
    assert log.boundaries()[0].size_bytes == before[2].size_bytes - before[1].size_bytes
    await log.close()


async def test_what_a_trim_took_counts_no_more_while_it_leaves_the_disk(tmp_path: Path) -> None:
    """Or a limit of bytes would take more than is beyond it."""
    log = await ten_a_segment(tmp_path)
    before, size_bytes = log.boundaries(), log.size_bytes
    trimming = asyncio.create_task(log.trim(before[1].trim))
    while log.state.start.position < before[1].trim.point.position:  # noqa: ASYNC110  # it moves before they go
        await asyncio.sleep(0)
    assert log.size_bytes == size_bytes, "its segments are still there"
    kept_bytes, freed_bytes = log.kept_bytes, log.boundaries()[0].size_bytes
    await trimming
    assert kept_bytes == log.kept_bytes == log.size_bytes
    assert freed_bytes == log.boundaries()[0].size_bytes
    await log.close()


@pytest.mark.parametrize("position", [1, 9, 10, 11, 25, 39, 40, 41, 45])
async def test_the_log_begins_exactly_at_the_trim_point(tmp_path: Path, position: int) -> None:
    log = await ten_a_segment(tmp_path)
    to = await point(log, position)
    frames = await all_frames(log)
    await log.trim(to)
    assert (log.state.start, log.state.first_index) == to
    assert [each.raw for each in await all_frames(log)] == [each.raw for each in frames[position:]]
    assert bases(tmp_path) == [base for base in (1, 11, 21, 31, 41) if base + 9 > position]
    await log.close()


async def test_around_the_start_everything_is_told_apart(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    to = await point(log, 25)
    await log.trim(to)
    assert await log.point_at(Position(25)) == to.point
    assert log.term_at(Position(25)) == 1
    assert (await log.read(Position(26), 1))[0].header.position == 26
    assert (await log.frame_of(Index(25))).header.position == 26
    assert log.cached(Position(25), 1) is None
    for refused in (log.read(Position(25), 1), log.frame_of(Index(24)), log.point_at(Position(24))):
        with pytest.raises(DLedgerError) as below:
            await refused
        assert below.value.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN
        assert below.value.metadata == {"first_index": "25"}
    await log.close()


async def test_a_trim_to_what_is_trimmed_already_does_nothing(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    lower, higher = await point(log, 10), await point(log, 30)
    await log.trim(higher)
    await log.trim(lower)
    await log.trim(higher)
    assert log.state.start == higher.point
    await log.close()


async def test_another_frame_than_the_logs_own_is_never_trimmed_to(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    to = await point(log, 20)
    with pytest.raises(CorruptLog):
        await log.trim(to._replace(point=to.point._replace(chain=7)))
    assert (log.state.start.position, len(bases(tmp_path))) == (0, 5)
    await log.close()


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
async def test_after_a_restart_the_log_begins_with_its_first_segment_and_is_trimmed_again(
    tmp_path: Path, crash: bool
) -> None:
    log = await ten_a_segment(tmp_path)
    to = await point(log, 25)
    await log.trim(to)
    state = log.state.encode()
    await (abandon(log) if crash else log.close())
    async with opened(tmp_path) as reopened:
        assert (reopened.state.start.position, reopened.state.first_index) == (20, 20)
        await reopened.trim(to)
        assert reopened.state.encode() == state
        assert len(await all_frames(reopened)) == 20


async def test_what_a_trim_left_on_the_disk_goes_with_the_next_start(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    to = await point(log, 20)
    await log.close()
    kept = {path: path.read_bytes() for path in files_of(tmp_path)}
    async with opened(tmp_path) as log:
        await log.trim(to)
    for path in list(kept)[:3]:  # a segment, its small state, and another segment: as if their removal had been lost
        path.write_bytes(kept[path])
    async with opened(tmp_path) as log:
        assert log.state.start == to.point
        assert bases(tmp_path) == [21, 31, 41]


async def test_a_trimmed_log_is_verified_from_its_first_segment_on(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    await log.trim(await point(log, 20))
    await log.close()
    report = verify(tmp_path)
    assert (report.ok, report.first_index, report.last_index, report.frames) == (True, 20, 44, 25)


async def test_a_first_segment_that_does_not_say_so_is_a_log_that_lost_its_beginning(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    await log.close()
    segments_of(tmp_path)[0].unlink()
    with pytest.raises(CorruptLog, match="segments are missing"):
        await open_at(tmp_path)
    assert not verify(tmp_path).ok


async def test_a_reader_of_a_trimmed_segment_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = CarelessDisk()
    log = await ten_a_segment(tmp_path, disk=disk)
    log._cache.truncate(0)
    monkeypatch.setattr(disk, "pread_cached", lambda *_: None)  # it takes a thread, and so several turns
    trimmed = log._files.segments[:-1]
    for segment in trimmed:
        log._files.close(segment)
        segment.index = None
    reads = [asyncio.create_task(log.read(Position(first), 1000)) for first in (1, 11, 12)]
    await asyncio.sleep(0)
    await log.trim(await point(log, 40))
    assert bases(tmp_path) == [41]
    assert [frames[0].header.position for frames in await asyncio.gather(*reads)] == [1, 11, 12]
    assert all(segment.gone and segment.handle is None for segment in trimmed)
    await log.close()


async def test_appends_syncs_rolls_and_a_cut_go_on_during_a_trim(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    witness = Witness(log)
    trims = [asyncio.create_task(log.trim(each.trim)) for each in log.boundaries()]
    for _ in range(8):
        log.append(frames_after(log, 5))
        await asyncio.sleep(0)
    await log.truncate(Position(60))
    log.append(frames_after(log, 15, term=2))
    await asyncio.gather(*trims)
    await witness.all_durable()
    assert (log.state.start.position, log.last.position) == (40, 75)
    assert (log.term_at(Position(60)), log.term_at(Position(61))) == (1, 2)
    await abandon(log)
    async with opened(tmp_path) as reopened:
        assert len(await all_frames(reopened)) == 35
        assert reopened.state.start.position == 40


async def test_a_segment_in_use_goes_once_it_is_sealed(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk, LIMITS)
    witness = Witness(log)
    disk.hold_syncs = asyncio.Event()
    log.append(frames_after(log, 25))
    await log.trim(await point(log, 20))
    assert (log.state.start.position, bases(tmp_path)) == (20, [1, 11, 21])
    disk.hold_syncs.set()
    await witness.all_durable()
    await log._sealer.drain()
    await log._collector.settle()
    assert bases(tmp_path) == [21]
    await log.close()


async def test_a_segment_without_its_small_state_is_not_begun_with(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    to = await point(log, 30)
    await log.close()
    files_of(tmp_path, ".state")[3].unlink()
    async with opened(tmp_path) as log:
        assert 30 not in [each.trim.point.position for each in log.boundaries()]
        await log.trim(to)
        assert (log.state.start, bases(tmp_path)) == (to.point, [21, 31, 41])
        assert LogSnapshot.decode(await log.state_at_start()).last == to.point
    async with opened(tmp_path) as log:
        assert len(await all_frames(log)) == 25


def spoil(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


async def test_a_damaged_small_state_is_derived_from_the_frames_that_are_about_to_go(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    to = await point(log, 30)
    await log.close()
    state = files_of(tmp_path, ".state")[3]
    spoil(state, -1)
    async with opened(tmp_path) as log:
        await log.trim(to)
        assert (log.state.start, bases(tmp_path)) == (to.point, [31, 41])
        derived = await log.state_at_start()
    assert LogSnapshot.decode(derived).last == to.point
    assert len(good_copies(CarelessDisk(), str(state))) == 2
    async with opened(tmp_path) as log:
        assert await log.state_at_start() == derived
        assert len(await all_frames(log)) == 15


async def test_where_nothing_tells_the_small_state_the_segment_before_it_stays(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    to = await point(log, 30)
    await log.close()
    spoil(files_of(tmp_path, ".state")[3], -1)
    spoil(segments_of(tmp_path)[2], FIRST_PAGE_BYTES + 500)
    async with opened(tmp_path) as log:
        await log.trim(to)
        assert (log.state.start, bases(tmp_path)) == (to.point, [21, 31, 41])
        assert len(await all_frames(log)) == 15
        with pytest.raises(CorruptLog):
            await log.state_at_start()


@pytest.mark.parametrize("position", [0, 20, 25, 41, 45])
async def test_the_state_at_the_start_is_that_of_a_log_that_ends_there(tmp_path: Path, position: int) -> None:
    log = await ten_a_segment(tmp_path)
    frames = await all_frames(log)
    if position:
        await log.trim(await point(log, position))
    expected = LogSnapshot("default", log.state.members)
    for frame in frames[:position]:
        expected.apply(frame)
    expected.begin_at(TrimPoint(expected.last, expected.next_index))
    assert await log.state_at_start() == expected.encode()
    await log.close()


async def test_rot_before_the_trim_point_does_not_matter(tmp_path: Path) -> None:
    await (await ten_a_segment(tmp_path)).close()
    spoil(segments_of(tmp_path)[0], FIRST_PAGE_BYTES + 500)
    async with opened(tmp_path) as log:
        await log.trim(log.boundaries()[0].trim)
        assert len(await all_frames(log)) == 35


async def test_a_roll_that_was_asked_for_makes_a_boundary_right_behind_the_last_frame(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        witness = Witness(log)
        log.roll()  # of an empty segment nothing is to be had
        log.append(frames_after(log, 3))
        log.roll()
        log.roll()
        log.append(frames_after(log, 2))
        log.append(frames_after(log, 2))
        await witness.all_durable()
        await log._sealer.drain()
        assert [each.trim.point.position for each in log.boundaries()] == [3]
    assert bases(tmp_path) == [1, 4]
