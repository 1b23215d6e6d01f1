"""A disk that fills up refuses and goes on; a disk that fails is final."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from dledger.errors import Code, DiskError, DiskFull, DLedgerError
from dledger.types import Position
from tests.unit.storage.harness import FaultyDisk, Witness, abandon, all_frames, files_of, frames_after, open_at, opened


async def test_without_room_nothing_of_the_append_is_kept(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk) as log:
        log.append(frames_after(log, 10))
        await log._preparer.close()
        disk.full = True
        with pytest.raises(DiskFull):
            log.append(frames_after(log, 300))
        assert log.last.position == 10
        assert len(await all_frames(log)) == 10


async def test_a_log_without_room_goes_on_when_there_is_some(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    await log._preparer.close()
    disk.full = True
    with pytest.raises(DiskFull):
        log.append(frames_after(log, 300))
    disk.full = False
    log.append(frames_after(log, 300))
    await witness.all_durable()
    await log.close()
    async with opened(tmp_path) as reopened:
        assert reopened.last.position == 300


@pytest.mark.parametrize("written", [0, 1, 88, 250, 1000])
async def test_a_write_that_fails_half_way_leaves_nothing_behind(tmp_path: Path, written: int) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    log.append(frames_after(log, 3))
    await witness.all_durable()
    disk.fail_writes_after = written
    with pytest.raises(DiskError):
        log.append(frames_after(log, 8))
    await abandon(log)
    async with opened(tmp_path) as reopened:
        assert reopened.last.position == 3


async def test_an_append_across_a_roll_that_fails_leaves_neither_half(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    Witness(log)
    await log._preparer.close()
    files = files_of(tmp_path)
    disk.fail_writes_after = 0
    with pytest.raises(DiskError):
        log.append(frames_after(log, 300))
    assert files_of(tmp_path) == files
    await log.close()


async def test_the_first_failed_sync_is_final(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    disk.sync_error = OSError(errno.EIO, "injected")
    log.append(frames_after(log, 1))
    assert (await witness.failure()).code is Code.DISK_ERROR
    disk.sync_error = None
    syncs = disk.syncs
    with pytest.raises(DLedgerError):
        log.append(frames_after(log, 1))
    await log.close()
    assert (log.durable_position, disk.syncs, len(witness.failures)) == (0, syncs, 1)


async def test_a_truncation_whose_sync_fails_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    log.append(frames_after(log, 5))
    await witness.all_durable()

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(disk, "fdatasync", fail)
    with pytest.raises(DiskError):
        await log.truncate(Position(2))
    assert (await witness.failure()).code is Code.DISK_ERROR
    await log.close()
