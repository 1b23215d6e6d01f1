"""The small state that a trimmed log begins with: two copies, each of which will do, and the lost one comes back."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from dledger.common.config import Limits
from dledger.common.errors import CorruptLog, DiskError
from dledger.common.types import Position
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle
from dledger.log.file_log import FileLog
from dledger.log.segment.segment import TRAILER_BYTES
from dledger.log.segment.snapshot_file import COPY_ALIGN_BYTES, good_copies, keep_twice
from tests.unit.disk.test_reserve import SmallDisk
from tests.unit.log.harness import (
    Witness,
    abandon,
    files_of,
    frames_after,
    open_at,
    opened,
    segments_of,
    state_behind,
)

LIMITS = Limits(segment_max_frames=10)
BOTH = (0, COPY_ALIGN_BYTES)


async def trimmed(directory: Path, disk: OsDisk | None = None) -> FileLog:
    """An open log that begins behind position 20, with the segment that says so."""
    log = await open_at(directory, disk or OsDisk(), LIMITS)
    witness = Witness(log)
    for _ in range(9):
        log.append(frames_after(log, 5))
    await witness.all_durable()
    await log._sealer.drain()
    await log.trim(log.boundaries()[1].trim)
    return log


def first_state(directory: Path) -> Path:
    return files_of(directory, ".state")[0]


def copies(directory: Path) -> int:
    return len(good_copies(OsDisk(), str(first_state(directory))))


def damage(directory: Path, *offsets: int) -> None:
    path = first_state(directory)
    stored = bytearray(path.read_bytes())
    for offset in offsets:
        stored[offset : offset + 512] = bytes(512)
    path.write_bytes(stored)


async def test_a_trimmed_log_has_two_and_a_segment_further_up_one(tmp_path: Path) -> None:
    log = await trimmed(tmp_path)
    states = files_of(tmp_path, ".state")
    assert [len(good_copies(OsDisk(), str(path))) for path in states] == [2, 1, 1]
    await log.close()


@pytest.mark.parametrize("offset", BOTH, ids=["first", "second"])
async def test_one_copy_does_and_the_next_start_writes_the_other_again(tmp_path: Path, offset: int) -> None:
    log = await trimmed(tmp_path)
    begin = await log.state_at_start()
    await log.close()
    damage(tmp_path, offset)
    assert copies(tmp_path) == 1
    async with opened(tmp_path) as log:
        assert await log.state_at_start() == begin
        assert copies(tmp_path) == 2


@pytest.mark.parametrize("offset", BOTH, ids=["first", "second"])
async def test_the_scrub_writes_a_copy_again_that_rotted_meanwhile(tmp_path: Path, offset: int) -> None:
    log = await trimmed(tmp_path)
    begin = await log.state_at_start()
    damage(tmp_path, offset)
    assert await log.state_at_start() == begin
    await log.scrub(Position(1))
    assert copies(tmp_path) == 2
    await log.close()


async def test_a_log_that_was_reset_has_two(tmp_path: Path) -> None:
    log = await open_at(tmp_path, OsDisk(), LIMITS)
    Witness(log)
    begin = await state_behind(30)
    await log.reset(begin)
    assert copies(tmp_path) == 2
    assert await log.state_at_start() == begin
    await log.close()


async def test_without_any_the_log_is_not_opened_and_nothing_is_changed(tmp_path: Path) -> None:
    log = await trimmed(tmp_path)
    await log.close()
    damage(tmp_path, *BOTH)
    before = {path: path.read_bytes() for path in files_of(tmp_path)}
    with pytest.raises(CorruptLog, match="small state that the log begins with"):
        await open_at(tmp_path)
    assert {path: path.read_bytes() for path in files_of(tmp_path)} == before


async def test_a_full_disk_is_trimmed_with_one_and_has_two_once_there_is_room(tmp_path: Path) -> None:
    disk = SmallDisk()
    log = await trimmed(tmp_path, disk)
    second = files_of(tmp_path, ".state")[1]
    disk.room_bytes = 0
    segment = log._files.segments[1]
    assert keep_twice(disk, segment), "one will have to do"
    assert len(good_copies(disk, str(second))) == 1
    await log.trim(log.boundaries()[0].trim)
    assert first_state(tmp_path) == second
    assert copies(tmp_path) == 2, "what was trimmed made room"
    await log.close()


class BadPages(OsDisk):
    """Does not give back some pages of files; a file that takes the name of one has pages of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._bad: set[tuple[int, int]] = set()
        self._times = 0

    def spoil(self, path: Path, *offsets: int, times: int = 1 << 30) -> None:
        """The next ``times`` reads of them fail."""
        self._times = times
        self._bad |= {(path.stat().st_ino, offset // COPY_ALIGN_BYTES) for offset in offsets}

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        inode = os.fstat(handle).st_ino
        pages = range(offset // COPY_ALIGN_BYTES, (offset + size_bytes - 1) // COPY_ALIGN_BYTES + 1)
        if self._times and any((inode, page) in self._bad for page in pages):
            self._times -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().pread(handle, size_bytes, offset)


@pytest.mark.parametrize("offset", BOTH, ids=["first", "second"])
async def test_one_copy_does_where_the_device_does_not_give_back_the_other(tmp_path: Path, offset: int) -> None:
    await (await trimmed(tmp_path)).close()
    disk = BadPages()
    disk.spoil(first_state(tmp_path), offset)
    log = await open_at(tmp_path, disk, LIMITS)
    assert len(good_copies(disk, str(first_state(tmp_path)))) == 2
    await log.close()


async def test_where_the_device_gives_back_neither_a_start_is_refused_for_the_disk(tmp_path: Path) -> None:
    await (await trimmed(tmp_path)).close()
    disk = BadPages()
    disk.spoil(first_state(tmp_path), *BOTH)
    with pytest.raises(DiskError, match="Input/output error"):
        await open_at(tmp_path, disk, LIMITS)


async def test_and_a_scrub_goes_on(tmp_path: Path) -> None:
    disk = BadPages()
    log = await trimmed(tmp_path, disk)
    disk.spoil(first_state(tmp_path), *BOTH)
    assert await log.scrub(Position(1)) > 21
    await log.close()


async def test_a_trim_derives_what_the_device_does_not_give_back(tmp_path: Path) -> None:
    disk = BadPages()
    log = await trimmed(tmp_path, disk)
    boundary = log.boundaries()[0].trim
    disk.spoil(files_of(tmp_path, ".state")[1], 0)
    await log.trim(boundary)
    assert int(segments_of(tmp_path)[0].stem.split("-")[1]) == boundary.point.position + 1
    assert len(good_copies(disk, str(first_state(tmp_path)))) == 2
    await log.close()


async def test_a_start_that_needs_none_of_it_passes_over_what_the_device_does_not_give_back(tmp_path: Path) -> None:
    """The segment before it was not sealed: its small state would say where it begins, if its header did not."""
    log = await open_at(tmp_path, OsDisk(), LIMITS)
    witness = Witness(log)
    log.append(frames_after(log, 15))
    await witness.all_durable()
    await log._sealer.drain()
    await abandon(log)
    first, disk = segments_of(tmp_path)[0], BadPages()
    first.write_bytes(first.read_bytes()[:-TRAILER_BYTES] + bytes(TRAILER_BYTES))
    disk.spoil(files_of(tmp_path, ".state")[1], 0)
    async with opened(tmp_path, disk, LIMITS) as again:
        assert again.last.position == 15


async def test_who_has_to_tell_what_no_device_gives_back_says_so(tmp_path: Path) -> None:
    """Rot would be another matter: what the device gives back again is good."""
    disk = BadPages()
    log = await trimmed(tmp_path, disk)
    begin = await log.state_at_start()
    for times in range(1, 7):
        disk.spoil(first_state(tmp_path), *BOTH, times=times)
        with contextlib.suppress(DiskError):
            assert await log.state_at_start() == begin
    disk.spoil(first_state(tmp_path), *BOTH)
    with pytest.raises(DiskError, match="Input/output error"):
        await log.state_at_start()
    await log.close()


async def test_a_header_that_it_alone_could_tell_is_not_taken_for_lost(tmp_path: Path) -> None:
    await (await trimmed(tmp_path)).close()
    first, disk = segments_of(tmp_path)[0], BadPages()
    first.write_bytes(bytes(64) + first.read_bytes()[64:])
    disk.spoil(first_state(tmp_path), *BOTH)
    with pytest.raises(DiskError, match="Input/output error"):
        await open_at(tmp_path, disk, LIMITS)
