"""A disk that fills up refuses and goes on; a disk that fails is final."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from dledger.common.errors import Code, DiskError, DiskFull, DLedgerError, OutcomeUnknown
from dledger.common.types import Position, TrimPoint
from dledger.log.file_log import FileLog
from dledger.log.segment import sealer
from dledger.testing.memory_log import MemoryLog
from tests.unit.log.harness import (
    MEMBERS,
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


def failing(monkeypatch: pytest.MonkeyPatch, disk: FaultyDisk, primitive: str, code: int, after: int = 0) -> None:
    """The ``after`` next calls of ``primitive`` succeed, all later ones fail."""
    original, left = getattr(disk, primitive), [after]

    def fail(*args: object, **named: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(code, "injected")
        return original(*args, **named)

    monkeypatch.setattr(disk, primitive, fail)


async def with_boundaries(directory: Path, disk: FaultyDisk) -> tuple[FileLog, Witness]:
    log = await open_at(directory, disk)
    witness = Witness(log)
    for _ in range(6):
        log.append(frames_after(log, 50))
        await witness.all_durable()
    await log._sealer.drain()
    return log, witness


async def test_a_spare_segment_that_cannot_be_removed_stays_until_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    Witness(log)
    log.append(frames_after(log, 30))
    assert log._preparer._task is not None
    await log._preparer._task
    failing(monkeypatch, disk, "unlink", errno.EIO)
    await log.close()
    monkeypatch.undo()
    [spare] = files_of(tmp_path, ".prepared")
    async with opened(tmp_path) as reopened:
        assert reopened.last.position == 30
        assert not spare.exists()


@pytest.mark.parametrize("primitive", ["pwritev", "fdatasync", "unlink", "fsync_directory"])
async def test_a_trim_that_meets_a_bad_disk_is_final_and_takes_nothing_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, primitive: str
) -> None:
    disk = FaultyDisk()
    log, witness = await with_boundaries(tmp_path, disk)
    to = log.boundaries()[2].trim
    await log._preparer.close()
    failing(monkeypatch, disk, primitive, errno.EIO)
    await log.trim(to)
    assert (await witness.failure()).code is Code.DISK_ERROR
    monkeypatch.undo()
    await abandon(log)
    async with opened(tmp_path) as reopened:
        assert reopened.state.start.position <= to.point.position
        assert reopened.last.position == 300
        assert len(await all_frames(reopened)) == 300 - reopened.state.start.position


@pytest.mark.parametrize("primitive", ["pwritev", "fdatasync", "rename", "unlink", "fsync_directory"])
@pytest.mark.parametrize("after", range(3))
async def test_a_reset_that_meets_a_bad_disk_is_refused_and_leaves_one_log_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, primitive: str, after: int
) -> None:
    other = MemoryLog("default", MEMBERS)
    Witness(other)
    other.append(frames_after(other, 400))
    await other.trim(TrimPoint(other.last, other.state.next_index))
    disk = FaultyDisk()
    log, _ = await with_boundaries(tmp_path, disk)
    await log._preparer.close()
    failing(monkeypatch, disk, primitive, errno.EIO, after)
    with contextlib.suppress(DiskError):
        await log.reset(await other.state_at_start())
    monkeypatch.undo()
    await abandon(log)
    async with opened(tmp_path) as reopened:
        assert (reopened.state.start.position, reopened.last.position) in {(0, 300), (400, 400)}
        assert len(await all_frames(reopened)) == reopened.last.position - reopened.state.start.position


async def test_a_small_state_without_room_costs_a_boundary_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "injected")

    log, witness = await with_boundaries(tmp_path, FaultyDisk())
    before = log.boundaries()
    with monkeypatch.context() as full:
        full.setattr(sealer, "write_state", no_room)
        log.append(frames_after(log, 200))
        await witness.all_durable()
        await log._sealer.drain()
    assert log.boundaries() == before
    assert all(segment.sealed for segment in log._files.segments[:-1])
    log.append(frames_after(log, 200))
    await witness.all_durable()
    await log._sealer.drain()
    assert len(log.boundaries()) > len(before)
    assert not witness.failures
    await log.close()
    async with opened(tmp_path) as reopened:
        assert (reopened.last.position, reopened.boundaries()) == (700, log.boundaries())


async def test_a_segment_without_room_for_its_footer_does_not_keep_a_full_disk_from_being_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "injected")

    log = await open_at(tmp_path)
    witness = Witness(log)
    monkeypatch.setattr(sealer, "seal", no_room)
    frames = frames_after(log, 300)
    log.append(frames)
    await witness.all_durable()
    await log._sealer.drain()
    last = log.boundaries()[-1]
    assert last.last_timestamp_ms == frames[last.trim.point.position - 1].header.timestamp_ms
    await log.trim(last.trim)
    assert len(segments_of(tmp_path)) == 1
    await log.close()


async def test_a_write_that_cannot_be_taken_back_is_of_unknown_outcome_and_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    log.append(frames_after(log, 1))
    await witness.all_durable()
    await log._preparer.close()
    disk.fail_writes_after = 100
    failing(monkeypatch, disk, "fdatasync", errno.EIO)
    with pytest.raises(OutcomeUnknown, match="unknown") as raised:
        log.append(frames_after(log, 3))
    assert raised.value.code is Code.TERM_CHANGED
    assert (await witness.failure()).code is Code.DISK_ERROR
    with pytest.raises(DiskError):
        log.append(frames_after(log, 3))
    await log.close()
