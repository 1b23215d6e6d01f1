"""A disk that something else has filled: records are refused, and what ends it still finds room."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dledger.common.batch import Buffer
from dledger.common.config import Limits
from dledger.common.errors import DiskFull
from dledger.disk.reserve import (
    RESERVE_BYTES,
    RESERVE_BYTES_A_LOG,
    RESERVE_NAME,
    SHARED_RESERVE_NAME,
    Reserve,
    Reserves,
)
from dledger.disk.syncer import Handle
from dledger.log.file_log import FileLog
from dledger.log.frame.control import no_op_body
from dledger.log.frame.frame import ControlKind, Frame
from tests.unit.log.harness import (
    MEMBERS,
    CarelessDisk,
    Witness,
    all_frames,
    control_frame,
    files_of,
    frames_after,
    open_at,
    opened,
    prove_room,
    state_behind,
)

LIMITS = Limits(segment_max_frames=10)
KIB = 1 << 10


class SmallDisk(CarelessDisk):
    """Has ``room_bytes`` left; files that go give theirs back."""

    def __init__(self, room_bytes: int = 1 << 40) -> None:
        super().__init__()
        self.room_bytes = room_bytes

    def _take(self, handle: Handle, end: int) -> None:
        grown_bytes = max(0, end - os.fstat(handle).st_size)
        if grown_bytes > self.room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room_bytes -= grown_bytes

    def fallocate(self, handle: Handle, offset: int, size_bytes: int) -> None:
        self._take(handle, offset + size_bytes)
        super().fallocate(handle, offset, size_bytes)

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        self._take(handle, offset + sum(map(len, buffers)))
        super().pwritev(handle, buffers, offset)

    def unlink(self, path: str) -> None:
        size_bytes = Path(path).stat().st_size
        super().unlink(path)
        self.room_bytes += size_bytes


def vital_frame(log: FileLog) -> Frame:
    return control_frame(log.last, log.state.next_index, ControlKind.NO_OP, no_op_body("c", MEMBERS))


async def filled(directory: Path, disk: SmallDisk, *, is_kept: bool = True) -> tuple[FileLog, Witness]:
    """A log whose segment in use has room for no frame more, on a disk that has just been filled by something else."""
    log = await open_at(directory, disk, LIMITS)
    witness = Witness(log)
    assert await prove_room(log) or not is_kept
    log.append(frames_after(log, 10))
    await witness.all_durable()
    await log._preparer.close()
    disk.room_bytes = 0
    return log, witness


def test_a_reserve_is_kept_where_there_is_room_for_two(tmp_path: Path) -> None:
    disk = SmallDisk(2 * RESERVE_BYTES)
    reserve = Reserve(disk, tmp_path)
    assert reserve.prove()
    assert [path.name for path in files_of(tmp_path)] == [RESERVE_NAME]
    assert disk.room_bytes == RESERVE_BYTES
    assert reserve.prove(), "again, without another one"
    disk.room_bytes -= 1
    assert not reserve.prove(), "what is kept is no room to write"
    assert reserve.is_kept


def test_without_room_nothing_is_kept_and_nothing_left_behind(tmp_path: Path) -> None:
    assert not Reserve(SmallDisk(RESERVE_BYTES - 1), tmp_path).prove()
    assert files_of(tmp_path) == []


def test_a_reserve_is_taken_once(tmp_path: Path) -> None:
    disk = SmallDisk()
    reserve = Reserve(disk, tmp_path)
    assert not reserve.take()
    reserve.prove()
    assert reserve.take()
    assert not reserve.take()


async def test_records_do_not_get_the_reserve_and_what_ends_a_full_disk_does(tmp_path: Path) -> None:
    disk = SmallDisk()
    log, witness = await filled(tmp_path, disk)
    with pytest.raises(DiskFull):
        log.append(frames_after(log, 1))
    producer = control_frame(log.last, log.state.next_index, ControlKind.PRODUCER)
    with pytest.raises(DiskFull):
        log.append([producer])
    log.append([vital_frame(log)])
    await witness.all_durable()
    assert not await prove_room(log)
    await log.close()
    async with opened(tmp_path, disk, LIMITS) as reopened:
        assert reopened.last.position == 11


async def test_the_reserve_of_an_earlier_start_serves_the_next_one(tmp_path: Path) -> None:
    disk = SmallDisk()
    log, _ = await filled(tmp_path, disk)
    await log.close()
    async with opened(tmp_path, disk, LIMITS) as reopened:
        disk.room_bytes = 0
        reopened.append([vital_frame(reopened)])


async def test_a_full_disk_is_trimmed_and_has_its_reserve_again(tmp_path: Path) -> None:
    disk = SmallDisk()
    log, witness = await filled(tmp_path, disk)
    log.append([vital_frame(log)])
    await witness.all_durable()
    await log._sealer.drain()
    boundary = log.boundaries()[-1]
    assert boundary.trim.point.position == 10, "its small state found room too"
    await log.trim(boundary.trim)
    disk.room_bytes += 2 * RESERVE_BYTES  # the trimmed segment was a small one
    assert await prove_room(log)
    assert len(await all_frames(log)) == 1
    await log.close()


async def test_a_log_on_a_full_disk_can_be_reset(tmp_path: Path) -> None:
    disk = SmallDisk()
    log, witness = await filled(tmp_path, disk)
    await log.reset(await state_behind(400))
    assert log.last.position == 400
    log.append(frames_after(log, 1, term=3))
    await witness.all_durable()
    await log.close()


async def test_a_reset_without_room_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = SmallDisk()
    log, _ = await filled(tmp_path, disk)
    log._reserve.take()
    disk.room_bytes = 0
    with pytest.raises(DiskFull):
        await log.reset(await state_behind(400))
    assert (log.last.position, len(await all_frames(log))) == (10, 10)
    await log.close()


async def test_a_smaller_segment_does_where_there_is_no_room_for_a_large_one(tmp_path: Path) -> None:
    disk = SmallDisk()
    log, witness = await filled(tmp_path, disk, is_kept=False)
    disk.room_bytes = 128 * KIB  # the next one would have 256 KiB
    log.append(frames_after(log, 1))
    await witness.all_durable()
    assert log._files.active.size_bytes == 64 * KIB
    await log.close()


def test_the_first_log_has_a_reserve_that_no_other_takes(tmp_path: Path) -> None:
    reserves = Reserves(SmallDisk(), tmp_path, "meta")
    own, _ = reserves.of("meta")
    shared = [reserves.of(f"group.{number}")[0] for number in range(20)]
    assert reserves.prove()
    assert shared[0].take()
    assert not shared[1].take(), "they share it"
    assert own.is_kept


def test_the_shared_reserve_grows_with_the_logs(tmp_path: Path) -> None:
    reserves = Reserves(SmallDisk(), tmp_path, "meta")
    for count in (1, 2, 3):
        _, grows = reserves.of(f"group.{count}")
        assert grows
        assert reserves.prove()
        assert (tmp_path / SHARED_RESERVE_NAME).stat().st_size == count * RESERVE_BYTES_A_LOG
    assert not reserves.of("group.3")[1], "it is opened again"
