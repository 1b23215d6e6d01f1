"""Truncation: durable when it returns, whatever was in flight, wherever the cut lies."""

from __future__ import annotations

import asyncio
import errno
import gc
from pathlib import Path
from typing import Any

import pytest

from dledger.common.config import Limits
from dledger.common.errors import Code
from dledger.common.types import Position
from dledger.log.log_api import Damaged
from dledger.log.segment.segment import FIRST_PAGE_BYTES
from tests.unit.log.harness import (
    SMALL,
    FaultyDisk,
    Witness,
    abandon,
    all_frames,
    frames_after,
    open_at,
    opened,
    segments_of,
    write_log,
)


def cuts(directory: Path) -> dict[str, int]:
    """Positions in every relation to a log of 300 frames in several segments."""
    bases = [int(path.stem.split("-")[1]) for path in segments_of(directory)]
    return {
        "everything": 0,
        "first frame stays": 1,
        "middle of a sealed segment": bases[2] + 5,
        "last frame of a sealed segment": bases[2] - 1,
        "first frame of a sealed segment": bases[2],
        "last frame before the active segment": bases[-1] - 1,
        "first frame of the active segment": bases[-1],
        "middle of the active segment": (bases[-1] + 300) // 2,
        "last frame goes": 299,
        "nothing": 300,
    }


RELATIONS = (
    "everything",
    "first frame stays",
    "middle of a sealed segment",
    "last frame of a sealed segment",
    "first frame of a sealed segment",
    "last frame before the active segment",
    "first frame of the active segment",
    "middle of the active segment",
    "last frame goes",
    "nothing",
)


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize("relation", RELATIONS)
async def test_a_cut_log_equals_one_that_never_had_more(tmp_path: Path, relation: str, crash: bool) -> None:
    await write_log(tmp_path / "cut", 300)
    after = cuts(tmp_path / "cut")[relation]
    log = await open_at(tmp_path / "cut")
    Witness(log)
    await log.truncate(Position(after))
    assert log.last.position == log.durable_position == after
    await (abandon(log) if crash else log.close())
    await write_log(tmp_path / "short", after)
    async with opened(tmp_path / "cut") as cut, opened(tmp_path / "short") as short:
        assert cut.state.encode() == short.state.encode()
        assert [frame.raw for frame in await all_frames(cut)] == [frame.raw for frame in await all_frames(short)]


@pytest.mark.parametrize("relation", RELATIONS)
async def test_a_log_goes_on_behind_the_cut(tmp_path: Path, relation: str) -> None:
    await write_log(tmp_path, 300)
    after = cuts(tmp_path)[relation]
    log = await open_at(tmp_path)
    witness = Witness(log)
    await log.truncate(Position(after))
    log.append(frames_after(log, 150, term=2))
    await witness.all_durable()
    await abandon(log)
    async with opened(tmp_path) as reopened:
        assert reopened.last.position == after + 150
        assert reopened.term_at(Position(after + 1)) == 2
        assert len(await all_frames(reopened)) == after + 150


async def test_a_completion_begun_before_the_cut_is_dropped(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    log.append(frames_after(log, 3))
    await witness.all_durable()
    disk.hold_syncs = asyncio.Event()
    log.append(frames_after(log, 5))
    truncation = asyncio.create_task(log.truncate(Position(4)))
    await asyncio.sleep(0)
    disk.hold_syncs.set()
    await truncation
    assert witness.durable[-1] == 4
    assert log.durable_position == log.last.position == 4
    await log.close()


async def test_a_disk_that_fails_behind_a_caller_that_is_gone_is_told_once_and_leaves_no_error_behind(
    tmp_path: Path,
) -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unheard.append(context))
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    disk.hold_syncs = asyncio.Event()
    log.append(frames_after(log, 5))
    truncation = asyncio.create_task(log.truncate(Position(2)))
    while not log._rewrite_lock.lock.locked():  # noqa: ASYNC110 – a task of the log takes it
        await asyncio.sleep(0)
    truncation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await truncation
    disk.sync_error = OSError(errno.EIO, "injected")
    disk.hold_syncs.set()
    await log.close()
    gc.collect()
    assert [failure.code for failure in witness.failures] == [Code.DISK_ERROR]
    assert not unheard


async def test_frames_written_and_not_yet_synced_are_cut_too(tmp_path: Path) -> None:
    log = await open_at(tmp_path)
    Witness(log)
    log.append(frames_after(log, 200))
    await log.truncate(Position(2))
    await abandon(log)
    async with opened(tmp_path) as reopened:
        assert reopened.last.position == 2


async def test_a_read_under_way_never_sees_half_of_a_cut(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    async with opened(tmp_path) as log:
        reads = [asyncio.create_task(log.read(Position(each), 500)) for each in range(1, 300, 7)]
        await log.truncate(Position(100))
        for first, frames in zip(range(1, 300, 7), await asyncio.gather(*reads), strict=True):
            assert all(frame.header.position <= 100 for frame in frames)
            assert bool(frames) is (first <= 100)


async def test_a_committed_frame_is_never_cut(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.append(frames_after(log, 5))
        log.set_commit_hint(Position(3))
        with pytest.raises(AssertionError, match="committed"):
            await log.truncate(Position(2))


@pytest.mark.parametrize("size_bytes", [100, 5 * SMALL.segment_max_bytes], ids=["small frames", "a large frame"])
async def test_a_sealed_segment_cut_down_to_nothing_is_written_again_under_its_name(
    tmp_path: Path, size_bytes: int
) -> None:
    limits = Limits(segment_max_bytes=SMALL.segment_max_bytes, segment_max_frames=5)
    log = await open_at(tmp_path, limits=limits)
    witness = Witness(log)
    log.append(frames_after(log, 12, size_bytes=1))
    await witness.all_durable()
    await log._sealer.drain()
    await log.truncate(Position(0))
    log.append(frames_after(log, 12, size_bytes=size_bytes))
    assert len({segment.path for segment in log._files.segments}) == len(log._files.segments)
    await witness.all_durable()
    await abandon(log)
    async with opened(tmp_path) as reopened:
        assert len(await all_frames(reopened)) == 12


async def test_a_segment_that_was_cut_away_is_not_looked_for_in_the_page_cache(tmp_path: Path) -> None:
    limits = Limits(segment_max_bytes=SMALL.segment_max_bytes, page_cache_bytes=40_000)
    async with opened(tmp_path, limits=limits) as log:
        witness = Witness(log)
        for _ in range(3):
            log.append(frames_after(log, 200))
            await witness.all_durable()
            await log._sealer.drain()
            await log.truncate(Position(5))
        assert not witness.failures


async def test_a_cut_that_reads_rot_changes_nothing_and_is_done_once_it_is_repaired(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    async with opened(tmp_path) as log:
        segment = log._files.segments[1]
        after = Position(segment.name.base_position + 8)
        rotten = await log.read(Position(after - 7), 1)
        path = segments_of(tmp_path)[1]
        content = bytearray(path.read_bytes())
        content[FIRST_PAGE_BYTES + 300] ^= 1
        path.write_bytes(content)
        with pytest.raises(Damaged, match=path.name):
            await log.truncate(after)
        (damaged,) = log.damaged()
        assert (log.last.position, damaged.first) == (300, rotten[0].header.position)
        await log.repair(damaged, rotten)
        await log.truncate(after)
        assert (log.last.position, log.damaged()) == (after, [])


async def test_a_sync_that_was_dropped_for_a_cut_that_changed_nothing_is_done_again(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    after = Position(log._files.segments[1].name.base_position + 8)
    path = segments_of(tmp_path)[1]
    content = bytearray(path.read_bytes())
    content[FIRST_PAGE_BYTES + 300] ^= 1
    path.write_bytes(content)
    disk.hold_syncs = asyncio.Event()
    log.append(frames_after(log, 3))
    truncation = asyncio.create_task(log.truncate(after))
    await asyncio.sleep(0)
    disk.hold_syncs.set()
    with pytest.raises(Damaged):
        await truncation
    await witness.all_durable()
    assert log.durable_position == log.last.position == 303
    await log.close()
