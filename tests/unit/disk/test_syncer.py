"""Syncers: who waits for the disk, and what is said when it fails."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dledger.disk import syncer as module
from dledger.disk.disk import OsDisk
from dledger.disk.record import RecordKind
from dledger.disk.syncer import Handle, Syncer, SyncPool, SyncThreads, ThreadSyncer
from dledger.disk.two_slot import TwoSlotFile

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
    syncer = SyncPool(disk).syncer()
    for _ in range(3):
        assert await outcome(syncer, [handle], []) is None
    assert disk.calls == []
    syncer.close()


async def test_several_files_and_directories_are_synced_in_order_by_the_thread(
    disk: CountingDisk, handle: Handle, tmp_path: Path
) -> None:
    syncer = SyncPool(disk).syncer()
    assert await outcome(syncer, [handle, handle], [str(tmp_path)]) is None
    assert disk.calls == ["file", "file", "directory"]
    syncer.close()


async def test_what_the_kernel_does_not_take_the_thread_tries_and_tells_why(disk: CountingDisk) -> None:
    read_end, write_end = os.pipe()
    syncer = SyncPool(disk).syncer()
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


@pytest.mark.parametrize("files", [1, 2], ids=["by the kernel", "by a thread"])
async def test_closing_waits_for_what_is_in_flight(disk: CountingDisk, handle: Handle, files: int) -> None:
    syncer = SyncPool(disk).syncer()
    told: list[OSError | None] = []
    syncer.sync([handle] * files, [], told.append)
    syncer.close()
    assert told == []
    await asyncio.sleep(0.01)
    assert told == [None], "as whoever asked is still there"


async def test_without_kernel_aio_a_thread_does_the_work(
    disk: CountingDisk, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_max_requests: int) -> None:
        raise SystemError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(linux_aio, "Context", refuse)
    syncer = SyncPool(disk).syncer()
    assert isinstance(syncer, ThreadSyncer)
    assert await outcome(syncer, [handle], []) is None
    assert disk.calls == ["file"]
    syncer.close()


class HangingDisk(OsDisk):
    """The device does not come back from an fdatasync of the files that were named, until it may go on."""

    def __init__(self, *hanging: str) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.hung = threading.Semaphore(0)
        self._hanging = hanging
        self._names: dict[Handle, str] = {}

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> Handle:
        handle = super().open(path, create=create, exclusive=exclusive, read_only=read_only)
        self._names[handle] = Path(path).name
        return handle

    def fdatasync(self, handle: Handle) -> None:
        if self._names[handle] in self._hanging:
            self.hung.release()
            assert self.may_go_on.wait(30)
        super().fdatasync(handle)

    async def hangs(self, times: int) -> None:
        for _ in range(times):
            await asyncio.to_thread(self.hung.acquire, timeout=10)


async def test_votes_are_saved_while_the_data_of_many_logs_waits_for_the_device(tmp_path: Path) -> None:
    disk = HangingDisk("data")
    data = disk.open(str(tmp_path / "data"), create=True)
    votes = TwoSlotFile(disk, str(tmp_path / "vote"), RecordKind.HARD_STATE)
    await votes.create(b"term 1")
    syncs = [asyncio.ensure_future(outcome(disk.syncer(), [data, data], [])) for _ in range(40)]
    jobs = [asyncio.ensure_future(disk.run(partial(disk.fdatasync, data))) for _ in range(40)]
    await disk.hangs(module.MAX_SYNC_THREADS + 4)
    await asyncio.wait_for(votes.save(b"term 2"), 5)
    assert not any(each.done() for each in [*syncs, *jobs])
    disk.may_go_on.set()
    assert await asyncio.gather(*syncs) == [None] * 40
    await asyncio.gather(*jobs)
    disk.close(data)
    await asyncio.to_thread(disk.shutdown)


async def test_two_hundred_idle_logs_have_no_thread_and_one_context_in_all(
    disk: CountingDisk, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[int] = []
    make = linux_aio.Context

    def counted(max_requests: int) -> object:
        contexts.append(max_requests)
        return make(max_requests)

    monkeypatch.setattr(linux_aio, "Context", counted)
    threads, pool = threading.active_count(), SyncPool(disk)
    syncers = [pool.syncer() for _ in range(200)]
    assert (threading.active_count(), len(contexts)) == (threads, 1)
    ended = await asyncio.gather(*(outcome(syncer, [handle], []) for syncer in syncers))
    assert ended == [None] * 200
    assert disk.calls == []
    for syncer in syncers:
        syncer.close()
    other = pool.syncer()
    assert len(contexts) == 2, "the last one to close had taken the first with it"
    assert await outcome(other, [handle], []) is None
    other.close()


async def test_more_than_the_kernel_takes_at_a_time_is_synced_all_the_same(
    disk: CountingDisk, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KERNEL_REQUESTS", 1)
    pool = SyncPool(disk)
    syncers = [pool.syncer() for _ in range(300)]
    assert await asyncio.gather(*(outcome(syncer, [handle], []) for syncer in syncers)) == [None] * 300
    for syncer in syncers:
        syncer.close()


async def test_an_error_is_told_to_the_log_whose_files_it_covers_and_to_no_other(
    disk: CountingDisk, handle: Handle
) -> None:
    read_end, write_end = os.pipe()
    pool = SyncPool(disk)
    first, failing, last = (pool.syncer() for _ in range(3))
    outcomes = await asyncio.gather(
        outcome(first, [handle], []), outcome(failing, [handle, Handle(write_end)], []), outcome(last, [handle], [])
    )
    assert [each is None for each in outcomes] == [True, False, True]
    for syncer in (first, failing, last):
        syncer.close()
    os.close(read_end)
    os.close(write_end)


async def test_what_one_log_makes_of_its_end_keeps_no_other_from_hearing_of_its_own(
    disk: CountingDisk, handle: Handle
) -> None:
    pool = SyncPool(disk)
    syncers = [pool.syncer() for _ in range(5)]
    told: list[int] = []
    faults: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

    def hear(number: int, _: OSError | None) -> None:
        told.append(number)
        raise ValueError(number)

    for number, syncer in enumerate(syncers):
        syncer.sync([handle], [], partial(hear, number))
    time.sleep(0.05)  # noqa: ASYNC251 – all of them end before the loop looks
    await asyncio.sleep(0.05)
    assert sorted(told) == list(range(5))
    assert len(faults) == 5
    for syncer in syncers:
        syncer.close()


async def test_threads_are_made_when_they_are_needed_and_end_when_they_are_not(tmp_path: Path) -> None:
    disk = HangingDisk("a", "b", "c")
    threads = SyncThreads(disk, max_threads=2, linger_s=0.05)
    syncers = [ThreadSyncer(threads) for _ in range(3)]
    handles = [disk.open(str(tmp_path / name), create=True) for name in "abc"]
    assert threads.threads == 0
    waiting = [
        asyncio.ensure_future(outcome(syncer, [handle], [])) for syncer, handle in zip(syncers, handles, strict=True)
    ]
    await disk.hangs(2)
    assert threads.threads == 2
    disk.may_go_on.set()
    assert await asyncio.gather(*waiting) == [None] * 3
    for _ in range(100):
        await asyncio.sleep(0.02)
        if not threads.threads:
            break
    assert threads.threads == 0
    assert await outcome(syncers[0], handles[:1], []) is None, "and made anew"
    for syncer in syncers:
        syncer.close()
    for handle in handles:
        disk.close(handle)
