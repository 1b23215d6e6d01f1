"""What the storage tests share: frames, an open log that can be waited for, and a disk that fails on demand."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dledger.common.batch import Buffer, build_body, crc32c
from dledger.common.config import Limits, Timings
from dledger.common.errors import DLedgerError
from dledger.common.types import Durability, LogPoint, Member, NodeId, Position, TrimPoint
from dledger.disk.disk import Disk, OsDisk
from dledger.disk.reserve import Reserve
from dledger.disk.syncer import Handle, OnSynced, Syncer, SyncThreads, ThreadSyncer
from dledger.log.file_log import FileLog
from dledger.log.frame.frame import Frame, make_frame
from dledger.log.log_api import Log
from dledger.log.log_opening import open_log
from dledger.testing.memory_log import MemoryLog

SMALL = Limits(segment_max_bytes=16 * 1024)
MEMBERS = (Member(NodeId("n0"), "127.0.0.1:1"),)


def data_frame(previous: LogPoint, index: int, records: Sequence[bytes] = (b"a", b"bc"), **fields: Any) -> Frame:
    body = build_body(records)
    fields = {"term": max(previous.term, 1), "timestamp_ms": 1000 + previous.position, **fields}
    return make_frame(previous, base_index=index, count=len(records), body=body, body_crc=crc32c(body), **fields)


def control_frame(previous: LogPoint, index: int, kind: int, body: bytes = b"") -> Frame:
    return make_frame(
        previous,
        term=max(previous.term, 1),
        base_index=index,
        count=0,
        body=body,
        body_crc=crc32c(body),
        timestamp_ms=1000 + previous.position,
        attributes=kind,
    )


def frames_after(log: Log, count: int, size_bytes: int = 100, **fields: int) -> list[Frame]:
    """``count`` data frames of one record each, to be appended to ``log``."""
    frames: list[Frame] = []
    previous, index = log.last, log.state.next_index
    for _ in range(count):
        frame = data_frame(previous, index, [bytes([65 + index % 26]) * size_bytes], **fields)
        frames.append(frame)
        previous, index = frame.header.point, frame.header.end_index
    return frames


class Witness:
    """What a log's callbacks said, and a way to wait for them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._changed = asyncio.Event()
        self.durable: list[Position] = []
        self.failures: list[DLedgerError] = []
        log.set_callbacks(self._on_durable, self._on_failure)

    async def all_durable(self) -> None:
        while self._log.durable_position < self._log.last.position:
            await self._change()

    async def durable_or_failed(self) -> None:
        while self._log.durable_position < self._log.last.position and not self.failures:
            await self._change()

    async def failure(self) -> DLedgerError:
        while not self.failures:
            await self._change()
        return self.failures[0]

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _on_durable(self, position: Position) -> None:
        self.durable.append(position)
        self._changed.set()

    def _on_failure(self, failure: DLedgerError) -> None:
        self.failures.append(failure)
        self._changed.set()


async def open_at(
    directory: Path,
    disk: Disk | None = None,
    limits: Limits = SMALL,
    *,
    durability: Durability = Durability.FSYNC,
    group: str = "default",
    reserve: Reserve | None = None,
    must_exist: bool = False,
) -> FileLog:
    disk = disk or OsDisk()
    return await open_log(
        disk,
        directory,
        group,
        durability=durability,
        limits=limits,
        timings=Timings(),
        initial_members=MEMBERS,
        reserve=reserve or Reserve(disk, directory),
        must_exist=must_exist,
    )


async def state_behind(last: int) -> bytes:
    """What a leader sends whose log begins behind position ``last``."""
    log = MemoryLog("default", MEMBERS)
    Witness(log)
    log.append(frames_after(log, last, size_bytes=1, term=3))
    await log.trim(TrimPoint(log.last, log.state.next_index))
    return await log.state_at_start()


async def abandon(log: FileLog) -> None:
    """As a crash of the process leaves the files: nothing more is written, no mark, no seal."""
    await log._sealer.pause()
    await log._commit._settle()
    log._commit.failure = log._commit.failure or DLedgerError("crashed")
    await log.close()


async def prove_room(log: FileLog) -> bool:
    """Whether its disk has room, found out by taking some."""
    return await log._files.disk.run(log._reserve.prove)


@asynccontextmanager
async def opened(directory: Path, disk: Disk | None = None, limits: Limits = SMALL) -> AsyncIterator[FileLog]:
    log = await open_at(directory, disk, limits)
    Witness(log)
    try:
        yield log
    finally:
        await log.close()


async def write_log(directory: Path, count: int, *, crash: bool = False, size_bytes: int = 100) -> None:
    """A log of ``count`` durable frames, closed in order or not."""
    log = await open_at(directory)
    witness = Witness(log)
    for frame in frames_after(log, count, size_bytes):
        log.append([frame])
    await witness.all_durable()
    await (abandon(log) if crash else log.close())


async def all_frames(log: Log) -> list[Frame]:
    """Every frame, read from the files."""
    if isinstance(log, FileLog):
        log._cache.truncate(0)
    frames: list[Frame] = []
    first = log.state.start.position + 1
    while got := await log.read(Position(first), 3000):
        frames += got
        first = got[-1].header.position + 1
    return frames


def segments_of(directory: Path) -> list[Path]:
    return files_of(directory, ".log")


def files_of(directory: Path, suffix: str = "") -> list[Path]:
    return sorted(directory.glob("*" + suffix))


class FaultyDisk(OsDisk):
    """Fails when told to, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self._threads = SyncThreads(self)
        self.full = False
        self.fail_writes_after: int | None = None
        """So many bytes of later writes succeed, then EIO."""
        self.sync_error: OSError | None = None
        self.syncs = 0
        self.hold_syncs: asyncio.Event | None = None

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        if self.fail_writes_after is not None:
            allowed, self.fail_writes_after = self.fail_writes_after, None
            os.pwrite(handle, b"".join(buffers)[:allowed], offset)
            raise OSError(errno.EIO, "injected")
        super().pwritev(handle, buffers, offset)

    def fallocate(self, handle: Handle, offset: int, size_bytes: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "injected")
        super().fallocate(handle, offset, size_bytes)

    def syncer(self) -> FaultySyncer:
        return FaultySyncer(self, self._threads)


class FaultySyncer(ThreadSyncer):
    """Tells its completions when it is allowed to."""

    def __init__(self, disk: FaultyDisk, threads: SyncThreads) -> None:
        super().__init__(threads)
        self._faults = disk
        self._tasks: set[asyncio.Task[None]] = set()

    def sync(self, handles: Sequence[Handle], directories: Sequence[str], on_done: OnSynced) -> None:
        self._faults.syncs += 1
        if self._faults.sync_error is not None:
            asyncio.get_running_loop().call_soon(on_done, self._faults.sync_error)
            return
        held = self._faults.hold_syncs
        if held is None:
            super().sync(handles, directories, on_done)
            return

        def done(reason: OSError | None) -> None:
            async def tell() -> None:
                await held.wait()
                on_done(self._faults.sync_error or reason)

            task = asyncio.get_running_loop().create_task(tell(), name="held-completion")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        super().sync(handles, directories, done)


class FullDisk(OsDisk):
    """Nothing can be written once it is full, as on a file system that copies on write."""

    is_full = False

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().pwritev(handle, buffers, offset)


class CarelessDisk(OsDisk):
    """Makes nothing durable: for tests that stop no machine and want to be quick."""

    def __init__(self) -> None:
        super().__init__()
        self._threads = SyncThreads(self)

    def fdatasync(self, handle: Handle) -> None:
        """Nothing."""

    def fsync_directory(self, path: str) -> None:
        """Nothing."""

    def syncer(self) -> Syncer:
        return ThreadSyncer(self._threads)
