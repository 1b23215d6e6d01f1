"""Rot in frames that were trimmed, or are while it is met, does not end the log, nor keep what is behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from dledger.common.errors import Code, CorruptLog, DLedgerError
from dledger.common.types import Index, Position, TrimPoint
from dledger.log.file_log import FileLog
from tests.unit.log.harness import (
    CarelessDisk,
    Witness,
    all_frames,
    frames_after,
    open_at,
    segments_of,
    state_behind,
)
from tests.unit.log.test_damage import decoy_in_a_frame, flip, offset_of
from tests.unit.log.test_trim import LIMITS, point, ten_a_segment


class SlowLook(CarelessDisk):
    """A segment takes as long to look at, or to read, as the test likes: real ones are up to gigabytes."""

    def __init__(self) -> None:
        super().__init__()
        self.slow: str = ""
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def run(self, job: Callable[[], Any]) -> Any:
        name = getattr(getattr(job, "func", job), "__name__", "")
        if self.slow and name == self.slow:
            self.slow = ""
            self.begun.set()
            go_on = self.go_on
            await go_on.wait()
        return await super().run(job)

    def pread_cached(self, handle: Any, size_bytes: int, offset: int) -> Any:
        return None if self.slow == "pread" else super().pread_cached(handle, size_bytes, offset)


async def rotten(directory: Path, disk: SlowLook, *, is_indexed: bool) -> FileLog:
    """A log whose first segment has just rotted; ``is_indexed``: where its frames lie is known."""
    log = await ten_a_segment(directory, disk=disk)
    Witness(log)
    log._cache.truncate(0)
    if is_indexed:
        await log.read(Position(5), 100)
    flip(segments_of(directory)[0], offset_of(4) + 150)
    return log


async def refused(log: FileLog, asking: asyncio.Task[Any], *others: asyncio.Task[Any]) -> None:
    """As trimmed; and the log goes on."""
    result = (await asyncio.gather(asking, *others, return_exceptions=True))[0]
    assert log.failure is None, f"{log.failure!r}"
    assert isinstance(result, DLedgerError), repr(result)
    assert result.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN
    await log.close()


async def test_rot_that_is_trimmed_away_while_it_is_looked_at_does_not_end_the_log(tmp_path: Path) -> None:
    disk = SlowLook()
    log = await rotten(tmp_path, disk, is_indexed=False)
    disk.slow = "look"
    reading = asyncio.create_task(log.read(Position(5), 100))
    await disk.begun.wait()
    to = log.boundaries()[1].trim
    trimming = asyncio.create_task(log.trim(to))
    while log.state.start != to.point:  # noqa: ASYNC110 – the first thing that a trim does
        await asyncio.sleep(0)
    disk.go_on.set()
    await refused(log, reading, trimming)


async def test_rot_read_in_a_segment_that_left_the_log_meanwhile_does_not_end_the_log(tmp_path: Path) -> None:
    disk = SlowLook()
    log = await rotten(tmp_path, disk, is_indexed=True)
    disk.slow = "pread"
    reading = asyncio.create_task(log.read(Position(5), 100))
    await disk.begun.wait()
    await log.trim(log.boundaries()[1].trim)
    disk.go_on.set()
    await refused(log, reading)


async def test_a_point_that_is_trimmed_away_while_rot_is_looked_at_is_refused(tmp_path: Path) -> None:
    disk = SlowLook()
    log = await rotten(tmp_path, disk, is_indexed=True)
    disk.slow = "pread"
    asking = asyncio.create_task(log.point_at(Position(5)))
    await disk.begun.wait()
    reading_may_end, disk.go_on = disk.go_on, asyncio.Event()
    disk.begun = asyncio.Event()
    disk.slow = "write_origin"  # the collector has the lock, and its disk is slow
    trimming = asyncio.create_task(log.trim(log.boundaries()[1].trim))
    await disk.begun.wait()
    reading_may_end.set()
    await asyncio.sleep(0.05)
    disk.go_on.set()
    await refused(log, asking, trimming)


@pytest.mark.parametrize("rotten", [12, 14])
@pytest.mark.parametrize("part", [20, 150], ids=["header", "body"])
@pytest.mark.parametrize("ask", ["get", "read", "point"])
async def test_frames_behind_rot_that_was_trimmed_are_read(tmp_path: Path, rotten: int, part: int, ask: str) -> None:
    """The log begins within a segment, at position 16."""
    log = await ten_a_segment(tmp_path)
    Witness(log)
    await log.trim(await point(log, 15))
    log._cache.truncate(0)
    flip(segments_of(tmp_path)[0], offset_of(rotten - 11) + part)
    if ask == "get":
        found = (await log.frame_of(Index(15))).header.position
    elif ask == "read":
        found = (await log.read(Position(16), 1))[0].header.position
    else:
        found = (await log.point_at(Position(16))).position
    assert found == 16
    assert not log.damaged()
    await log.close()


@pytest.mark.parametrize("ask", ["get", "read", "point", "trim"])
async def test_frames_behind_trimmed_rot_are_read_while_a_scrub_finds_it(tmp_path: Path, ask: str) -> None:
    disk = SlowLook()
    log = await ten_a_segment(tmp_path, disk=disk)
    Witness(log)
    await log.trim(await point(log, 15))
    to = await point(log, 17)
    log._cache.truncate(0)
    flip(segments_of(tmp_path)[0], offset_of(14 - 11) + 20)
    disk.slow = "look"
    scrubbing = asyncio.create_task(log.scrub(Position(16)))
    await disk.begun.wait()
    reads: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "get": lambda: log.frame_of(Index(15)),
        "read": lambda: log.read(Position(16), 1),
        "point": lambda: log.point_at(Position(16)),
        "trim": lambda: log.trim(to),
    }
    asking = asyncio.create_task(reads[ask]())
    await asyncio.sleep(0.1)
    disk.go_on.set()
    await asyncio.gather(scrubbing, asking)
    await log.close()


async def test_what_was_trimmed_is_not_missed_after_a_restart_either(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    witness = Witness(log)
    await log.trim(await point(log, 15))
    log.append(frames_after(log, 20))  # the small states of the segments behind know of the trim
    await witness.all_durable()
    await log._sealer.drain()
    await log.close()
    log = await open_at(tmp_path, CarelessDisk(), LIMITS)
    Witness(log)
    assert log.state.start.position == 15
    flip(segments_of(tmp_path)[0], offset_of(14 - 11) + 20)
    await scrub(log)
    assert not log.damaged()
    await log.close()


async def test_what_is_known_of_a_segment_goes_with_it(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    Witness(log)
    await log.trim(await point(log, 15))
    log._cache.truncate(0)
    flip(segments_of(tmp_path)[0], offset_of(14 - 11) + 20)
    await log.read(Position(16), 1)
    (segment, *_) = log._files.segments
    assert log._files.damage.of(segment)
    await log.trim(await point(log, 25))
    assert segment.gone
    assert not log._files.damage.of(segment)
    await log.close()


@pytest.mark.parametrize("rotten", [(15, 15), (14, 15), (15, 16), (13, 18), (11, 20)], ids=str)
async def test_a_trim_to_a_frame_that_rotted_is_carried_out(tmp_path: Path, rotten: tuple[int, int]) -> None:
    """What is kept of what rotted is repaired, though the frames before it are nowhere any more."""
    log = await ten_a_segment(tmp_path)
    Witness(log)
    good, to = {frame.header.position: frame for frame in await all_frames(log)}, await point(log, 15)
    await rot_and_find(log, tmp_path, *rotten)
    await log.trim(to)
    assert log.state.start == to.point
    first, last = rotten
    kept = [good[at] for at in range(max(16, first), last + 1)]
    assert [(each.first, each.last, each.previous) for each in log.damaged()] == (
        [(16, last, to.point)] if kept else []
    )
    for missing in log.damaged():
        await log.repair(missing, kept)
    assert not log.damaged()
    log._cache.truncate(0)
    assert [frame.raw for frame in await all_frames(log)] == [good[at].raw for at in range(16, 46)]
    await log.close()


async def test_frames_of_another_log_are_not_put_behind_what_was_trimmed(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    Witness(log)
    good, to = {frame.header.position: frame for frame in await all_frames(log)}, await point(log, 15)
    await rot_and_find(log, tmp_path, 14, 17)
    await log.trim(to)
    (missing,) = log.damaged()
    before = segments_of(tmp_path)[0].read_bytes()
    for wrong in ([16], [17], [15, 16, 17], [16, 17, 18]):
        with pytest.raises(CorruptLog):
            await log.repair(missing, [good[at] for at in wrong])
    assert segments_of(tmp_path)[0].read_bytes() == before
    await log.repair(missing, [good[16], good[17]])
    assert not log.damaged()
    await log.close()


async def test_a_trim_to_rot_is_carried_out_whatever_seems_to_follow(tmp_path: Path) -> None:
    log = await open_at(tmp_path, CarelessDisk(), LIMITS)
    witness = Witness(log)
    log.append(frames_after(log, 4))
    log.append([decoy_in_a_frame(log)])
    to = TrimPoint(log.last, log.state.next_index)
    log.append(frames_after(log, 3))
    await witness.all_durable()
    log._cache.truncate(0)
    flip(segments_of(tmp_path)[0], offset_of(4) + 20)
    await log.trim(to)
    assert log.state.start == to.point
    assert log.failure is None
    await log.close()


async def test_a_trim_that_a_reset_overtakes_does_nothing(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    Witness(log)
    to = await point(log, 15)
    log._cache.truncate(0)
    flip(segments_of(tmp_path)[1], offset_of(15 - 11) + 20)
    async with log._rewrite_lock.lock:  # while somebody looks at a segment
        trimming = asyncio.create_task(log.trim(to))
        await asyncio.sleep(0.05)
        resetting = asyncio.create_task(log.reset(await state_behind(500)))
        await asyncio.sleep(0.05)
    await asyncio.gather(resetting, trimming)
    assert log.state.start.position == 500
    await log.close()


async def test_a_point_is_told_while_the_log_is_trimmed_to_it(tmp_path: Path) -> None:
    log = await ten_a_segment(tmp_path)
    Witness(log)
    to = log.boundaries()[0].trim
    log._cache.truncate(0)
    flip(segments_of(tmp_path)[0], offset_of(to.point.position - 1) + 20)
    async with log._rewrite_lock.lock:
        asking = asyncio.create_task(log.point_at(to.point.position))
        await asyncio.sleep(0.05)
        trimming = asyncio.create_task(log.trim(to))
        await asyncio.sleep(0.05)
    await trimming
    assert await asking == to.point
    await log.close()


async def rot_and_find(log: FileLog, directory: Path, first: int, last: int) -> None:
    """Of the second segment, which begins with frame 11."""
    for at in range(first, last + 1):
        flip(segments_of(directory)[1], offset_of(at - 11) + 20)
    await scrub(log)
    assert log.damaged()
    log._cache.truncate(0)


async def scrub(log: FileLog) -> None:
    position = Position(log.state.start.position + 1)
    while position <= log.last.position:
        position = await log.scrub(position)
