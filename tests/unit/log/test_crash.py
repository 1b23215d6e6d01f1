"""A process that dies before any one of its writes leaves a log that opens, with all that was durable."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from dledger.common.batch import Buffer
from dledger.common.config import Limits
from dledger.common.errors import DLedgerError
from dledger.common.types import Position
from dledger.disk.syncer import Handle
from dledger.log.file_log import FileLog
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.verify import verify
from tests.unit.log.harness import CarelessDisk, Witness, all_frames, frames_after, open_at, state_behind

LIMITS = Limits(segment_max_bytes=8192, segment_max_frames=8)


class DyingDisk(CarelessDisk):
    """After so many changes none is made any more, as if the process were gone."""

    def __init__(self, changes: int) -> None:
        super().__init__()
        self._left = changes
        self.changes = 0

    @property
    def dead(self) -> bool:
        return self._left < 0

    def _change(self) -> None:
        self._left -= 1
        self.changes += 1
        if self.dead:
            raise OSError(errno.EIO, "the process is gone")

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        self._change()
        super().pwritev(handle, buffers, offset)

    def fallocate(self, handle: Handle, offset: int, size_bytes: int) -> None:
        self._change()
        super().fallocate(handle, offset, size_bytes)

    def ftruncate(self, handle: Handle, size_bytes: int) -> None:
        self._change()
        super().ftruncate(handle, size_bytes)

    def rename(self, source: str, target: str) -> None:
        self._change()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._change()
        super().unlink(path)

    def fdatasync(self, handle: Handle) -> None:
        self._change()


class Life:
    """Opens, appends over several rolls, cuts back, trims, is reset, appends after each, stops. Knows at any moment
    what is durable, and where the log may begin."""

    def __init__(self, directory: Path, disk: DyingDisk) -> None:
        self._directory = directory
        self._disk = disk
        self._log: FileLog | None = None
        self._floor = 0
        self.begins = [0]
        """The points that the log may begin behind: before the step under way, or after it."""

    @property
    def durable(self) -> int:
        """No crash may take these."""
        return min(self._floor, self._log.durable_position) if self._log is not None else 0

    async def live(self) -> None:
        try:
            self._log = log = await open_at(self._directory, self._disk, LIMITS)
        except DLedgerError:
            return
        witness = Witness(log)
        try:
            await self._append(log, witness, 30, term=1)
            self._floor = 11
            await log.truncate(Position(11))
            await self._append(log, witness, 12, term=2)
            to = log.boundaries()[-1].trim
            self.begins = [0, to.point.position]
            await log.trim(to)
            await self._append(log, witness, 12, term=2)
            await self._reset(log, witness)
        except DLedgerError:
            assert self._disk.dead
        await self._close(log)

    async def _reset(self, log: FileLog, witness: Witness) -> None:
        self.begins.append(50)
        await log.reset(await state_behind(50))
        self._floor, self.begins = 50, [50]
        await self._append(log, witness, 12, term=4)

    async def _append(self, log: FileLog, witness: Witness, count: int, term: int) -> None:
        for _ in range(count // 3):
            log.append(frames_after(log, 3, size_bytes=300, term=term))
            await witness.durable_or_failed()
            self._floor = max(self._floor, log.durable_position)

    async def _close(self, log: FileLog) -> None:
        durable = self.durable
        try:
            await log.close()
        except OSError:
            assert self._disk.dead
        self._floor = durable


@pytest.mark.parametrize("first", range(0, 220, 20))
async def test_a_process_may_die_before_any_write(tmp_path: Path, first: int) -> None:
    for changes in range(first, first + 20):
        directory = tmp_path / str(changes)
        disk = DyingDisk(changes)
        life = Life(directory, disk)
        await life.live()
        disk.shutdown()
        log = await open_at(directory, CarelessDisk(), LIMITS)
        Witness(log)
        start = log.state.start.position
        assert start in life.begins, f"died before change {changes}"
        frames = await all_frames(log)
        assert start + len(frames) == log.last.position >= life.durable, f"died before change {changes}"
        assert LogSnapshot.decode(await log.state_at_start()).last == log.state.start
        await log.close()
        assert verify(directory).ok


async def test_a_life_is_long_enough_for_all_of_it(tmp_path: Path) -> None:
    disk = DyingDisk(1 << 30)
    life = Life(tmp_path, disk)
    await life.live()
    assert life.begins == [50]
    assert disk.changes < 220
    disk.shutdown()
