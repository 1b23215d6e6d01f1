"""Syncers: who waits for the disk, and what is said when it fails."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.disk import syncer as module
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle, KernelSyncer, Syncer, ThreadSyncer, best_syncer

linux_aio = pytest.importorskip("caio.linux_aio", exc_type=ImportError)


class CountingDisk(OsDisk):
    """Knows what a thread was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def fdatasync(self, handle: Handle) -> None:
        self.calls.append("file")
        super().fdatasync(handle)

    def fsync_directory(self, path: str) -> None:
        self.calls.append("directory")
        super().fsync_directory(path)


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def handle(disk: CountingDisk, tmp_path: Path) -> Iterator[Handle]:
    handle = disk.open(str(tmp_path / "file"), create=True)
    disk.pwritev(handle, [b"x" * 4096], 0)
    yield handle
    disk.close(handle)


async def outcome(syncer: Syncer, handles: list[Handle], directories: list[str]) -> OSError | None:
    ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    syncer.sync(handles, directories, ended.set_result)
    return await asyncio.wait_for(ended, 5)


async def test_one_file_is_synced_by_the_kernel_without_a_thread(disk: CountingDisk, handle: Handle) -> None:
    syncer = KernelSyncer(disk, "test")
    for _ in range(3):
        assert await outcome(syncer, [handle], []) is None
    assert disk.calls == []
    syncer.close()


async def test_several_files_and_directories_are_synced_in_order_by_the_thread(
    disk: CountingDisk, handle: Handle, tmp_path: Path
) -> None:
    syncer = KernelSyncer(disk, "test")
    assert await outcome(syncer, [handle, handle], [str(tmp_path)]) is None
    assert disk.calls == ["file", "file", "directory"]
    syncer.close()


async def test_what_the_kernel_does_not_take_the_thread_tries_and_tells_why(disk: CountingDisk) -> None:
    read_end, write_end = os.pipe()
    syncer = KernelSyncer(disk, "test")
    failure = await outcome(syncer, [Handle(write_end)], [])
    assert failure is not None
    assert failure.errno == errno.EINVAL
    assert disk.calls == ["file"]
    syncer.close()
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize(
    ("result", "code"),
    [pytest.param((1 << 64) - errno.EIO, errno.EIO), pytest.param((1 << 64) - errno.ENOSPC, errno.ENOSPC)],
)
def test_a_negative_result_is_the_error_it_says(result: int, code: int) -> None:
    failure = module._failure(result)
    assert failure is not None
    assert failure.errno == code


def test_only_zero_is_success() -> None:
    assert module._failure(0) is None
    assert module._failure(7) is not None


async def test_closing_waits_for_what_is_in_flight(disk: CountingDisk, handle: Handle) -> None:
    syncer = KernelSyncer(disk, "test")
    told: list[OSError | None] = []
    syncer.sync([handle], [], told.append)
    syncer.close()
    assert syncer._ended == [0]


async def test_without_kernel_aio_a_thread_does_the_work(
    disk: CountingDisk, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_max_requests: int) -> None:
        raise SystemError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(linux_aio, "Context", refuse)
    syncer = best_syncer(disk, "test")
    assert isinstance(syncer, ThreadSyncer)
    assert await outcome(syncer, [handle], []) is None
    assert disk.calls == ["file"]
    syncer.close()
