"""Rot in frames that were trimmed, or are while it is met, does not end the log, nor keep what is behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import Code, DLedgerError
from dledger.storage.log import FileLog
from dledger.types import Index, Position
from tests.unit.storage.harness import CarelessDisk, Witness, segments_of
from tests.unit.storage.test_damage import flip, offset_of
from tests.unit.storage.test_trim import point, ten_a_segment


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
