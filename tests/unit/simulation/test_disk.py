"""The simulated disk keeps what was synced, and what was not by chance alone."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from dledger.disk.syncer import Handle
from tests.simulation.disk import DiskMood, SimDisk, Trap
from tests.simulation.platter import PAGE_BYTES, SECTOR_BYTES, Platter, Rot
from tests.support.virtual_time import settle, virtual_time

A, B = b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES
SEEDS = range(60)
SECTORS = range(0, 4 * SECTOR_BYTES, SECTOR_BYTES)


def disk_of(platter: Platter, mood: DiskMood | None = None) -> SimDisk:
    platter.mkdir("/d")
    return SimDisk(platter, mood or DiskMood(), "boot")


def durable_file(platter: Platter) -> tuple[SimDisk, Handle]:
    """Four sectors a, synced under a name that is."""
    disk = disk_of(platter)
    handle = disk.open("/d/f", create=True)
    disk.pwritev(handle, [A * 4], 0)
    disk.fdatasync(handle)
    disk.fsync_directory("/d")
    return disk, handle


def after_a_crash(platter: Platter) -> bytes:
    """What a power cut leaves of the file."""
    platter.crash()
    disk = disk_of(platter)
    handle = disk.open("/d/f")
    return disk.pread(handle, disk.size(handle), 0)


def survivors(seed: int, *, sync: bool) -> bytes:
    """What a power cut leaves of four sectors a, each then overwritten with b, unsynced."""
    platter = Platter(Random(seed))
    disk, handle = durable_file(platter)
    disk.pwritev(handle, [B * 4], 0)
    if sync:
        disk.fdatasync(handle)
    return after_a_crash(platter)


def test_what_was_synced_survives() -> None:
    assert all(survivors(seed, sync=True) == B * 4 for seed in SEEDS)


def test_unsynced_sectors_survive_independently_of_each_other() -> None:
    left = {survivors(seed, sync=False) for seed in SEEDS}
    assert {A * 4, B * 4} <= left
    assert any(A in (text[:512], text[512:1024]) and text[-512:] == B for text in left), (
        "a later one without an earlier"
    )


def test_a_sector_that_was_being_written_may_be_torn_its_beginning_new_and_its_end_old() -> None:
    sectors = {
        text[at : at + SECTOR_BYTES] for seed in SEEDS for text in [survivors(seed, sync=False)] for at in SECTORS
    }
    torn = sectors - {A, B}
    assert torn
    assert all(sector == B[: sector.count(b"b")] + A[sector.count(b"b") :] for sector in torn)


def left_of_a_truncated_file(seed: int, *, sync: bool, grows: bool = False) -> bytes:
    """What a power cut leaves of four durable sectors a of which one and a half are kept, and that may grow again."""
    platter = Platter(Random(seed))
    disk, handle = durable_file(platter)
    disk.ftruncate(handle, 3 * SECTOR_BYTES // 2)
    if grows:
        disk.fallocate(handle, 0, 4 * SECTOR_BYTES)
    if sync:
        disk.fdatasync(handle)
    return after_a_crash(platter)


def test_a_size_that_was_cut_and_synced_does_not_come_back() -> None:
    kept = (A * 4)[: 3 * SECTOR_BYTES // 2]
    assert {left_of_a_truncated_file(seed, sync=True) for seed in SEEDS} == {kept}
    assert {left_of_a_truncated_file(seed, sync=False) for seed in SEEDS} >= {kept, A * 4}


def test_nor_do_the_bytes_where_the_file_grew_again() -> None:
    kept = (A * 4)[: 3 * SECTOR_BYTES // 2].ljust(4 * SECTOR_BYTES, b"\0")
    assert {left_of_a_truncated_file(seed, sync=True, grows=True) for seed in SEEDS} == {kept}


def test_without_a_sync_the_bytes_or_zeros_may_be_there() -> None:
    left = {left_of_a_truncated_file(seed, sync=False, grows=True) for seed in range(300)}
    kept = (A * 4)[: 3 * SECTOR_BYTES // 2].ljust(4 * SECTOR_BYTES, b"\0")
    assert {A * 4, kept} <= left


@virtual_time
async def test_a_sync_that_began_before_a_truncation_does_not_always_cover_it() -> None:
    left = set()
    for seed in SEEDS:
        platter = Platter(Random(seed))
        disk, handle = durable_file(platter)
        await synced_meanwhile(disk, handle, partial(disk.ftruncate, handle, SECTOR_BYTES))
        left.add(len(after_a_crash(platter)))
    assert left == {SECTOR_BYTES, 4 * SECTOR_BYTES}


@virtual_time
async def test_what_such_a_sync_brings_to_the_medium_the_next_one_takes_away() -> None:
    platter = Platter(Random(1))
    disk = disk_of(platter)
    handle = disk.open("/d/f", create=True)
    disk.fsync_directory("/d")
    disk.pwritev(handle, [A * 4], 0)

    def cut_and_grow() -> None:
        disk.ftruncate(handle, SECTOR_BYTES)
        disk.fallocate(handle, 0, 4 * SECTOR_BYTES)

    await synced_meanwhile(disk, handle, cut_and_grow)
    disk.fdatasync(handle)
    assert after_a_crash(platter) == A + bytes(3 * SECTOR_BYTES)


@virtual_time
async def test_one_that_ends_later_than_another_takes_nothing_back() -> None:
    platter = Platter(Random(1))
    disk, handle = durable_file(platter)

    def cut_and_sync() -> None:
        disk.ftruncate(handle, SECTOR_BYTES)
        disk.fdatasync(handle)

    await synced_meanwhile(disk, handle, cut_and_sync)
    assert len(after_a_crash(platter)) == SECTOR_BYTES


async def synced_meanwhile(disk: SimDisk, handle: Handle, change: Callable[[], None]) -> None:
    """``change`` is done while a sync is under way."""
    done = asyncio.Event()
    disk.syncer().sync([handle], [], lambda _failure: done.set())
    change()
    await done.wait()


def test_pages_and_lost_sectors_that_were_cut_away_are_gone() -> None:
    mood = DiskMood()
    platter = Platter(Random(1))
    disk = disk_of(platter, mood)
    handle = disk.open("/d/f", create=True)
    disk.pwritev(handle, [bytes(3 * PAGE_BYTES)], 0)
    disk.fdatasync(handle)
    disk.pwritev(handle, [A], 2 * PAGE_BYTES)
    mood.fails_next_sync = True
    with pytest.raises(OSError, match="Input/output error"):
        disk.fdatasync(handle)
    platter.find("/d/f").unreadable.add(2)
    with pytest.raises(OSError, match="Input/output error"):
        disk.ftruncate(handle, 2 * PAGE_BYTES + 1)  # it has to read what it keeps of the page
    disk.ftruncate(handle, 2 * PAGE_BYTES)
    disk.drop_cache(handle)
    assert disk.size(handle) == 2 * PAGE_BYTES
    disk.fallocate(handle, 0, 3 * PAGE_BYTES)
    assert disk.pread(handle, PAGE_BYTES, 2 * PAGE_BYTES) == bytes(PAGE_BYTES)


def test_a_name_that_no_directory_sync_covers_may_go_with_its_bytes() -> None:
    there = set()
    for seed in SEEDS:
        platter = Platter(Random(seed))
        disk = disk_of(platter)
        handle = disk.open("/d/f", create=True)
        disk.pwritev(handle, [A], 0)
        disk.fdatasync(handle)
        platter.crash()
        there.add(platter.exists("/d/f"))
    assert there == {True, False}


def test_a_failed_sync_leaves_pages_that_look_clean_and_are_lost() -> None:
    mood = DiskMood(fails_next_sync=True)
    platter = Platter(Random(1))
    disk = disk_of(platter, mood)
    handle = disk.open("/d/f", create=True)
    disk.pwritev(handle, [A], 0)
    with pytest.raises(OSError, match=r"Input/output error"):
        disk.fdatasync(handle)
    disk.fdatasync(handle)  # says that all is well
    assert disk.pread(handle, SECTOR_BYTES, 0) == A
    disk.drop_cache(handle)
    assert disk.pread(handle, SECTOR_BYTES, 0) == bytes(SECTOR_BYTES)


def rotten_file(platter: Platter) -> tuple[SimDisk, Handle, Rot]:
    """Four sectors a, of which the second begins with a b now."""
    disk, handle = durable_file(platter)
    file = platter.find("/d/f")
    file.spoil(SECTOR_BYTES, b"b")
    return disk, handle, Rot("/d/f", file, SECTOR_BYTES, b"a", b"b", file.written[1])


@pytest.mark.parametrize("written", [b"a", b"b", b"c"])
def test_what_rotted_is_healed_once_something_that_was_written_there_is_durable(written: bytes) -> None:
    platter = Platter(Random(1))
    disk, handle, rot = rotten_file(platter)
    disk.pwritev(handle, [written], SECTOR_BYTES)
    assert not rot.is_healed(platter) or platter.find("/d/f").reached[1] == 2
    disk.fdatasync(handle)
    assert rot.is_healed(platter)


def test_what_rotted_is_healed_by_a_cut_whatever_is_written_in_its_place() -> None:
    platter = Platter(Random(1))
    disk, handle, rot = rotten_file(platter)
    disk.ftruncate(handle, SECTOR_BYTES // 2)
    assert not rot.is_healed(platter)
    disk.pwritev(handle, [b"b" * SECTOR_BYTES], SECTOR_BYTES // 2)
    disk.fdatasync(handle)
    assert rot.is_healed(platter)


def test_what_rotted_is_not_healed_by_what_is_written_beside_it() -> None:
    platter = Platter(Random(1))
    disk, handle, rot = rotten_file(platter)
    disk.pwritev(handle, [b"c"], SECTOR_BYTES + 1)
    disk.fdatasync(handle)
    assert not rot.is_healed(platter)


def lose_by_power(platter: Platter, disk: SimDisk, handle: Handle) -> SimDisk:
    del disk, handle
    platter.crash()
    return disk_of(platter)


def lose_by_a_failed_sync(platter: Platter, disk: SimDisk, handle: Handle) -> SimDisk:
    failing = disk_of(platter, DiskMood(fails_next_sync=True))
    with pytest.raises(OSError, match="Input/output error"):
        failing.fdatasync(failing.open("/d/f"))
    disk.drop_cache(handle)
    return disk


@pytest.mark.parametrize("lose", [lose_by_power, lose_by_a_failed_sync])
def test_what_rotted_stays_so_where_what_was_written_there_is_lost(
    lose: Callable[[Platter, SimDisk, Handle], SimDisk],
) -> None:
    healed = set()
    for seed in SEEDS:
        platter = Platter(Random(seed))
        disk, handle, rot = rotten_file(platter)
        disk.pwritev(handle, [b"b"], SECTOR_BYTES)
        disk = lose(platter, disk, handle)
        has_reached = platter.find("/d/f").reached.get(1, 0) >= 2
        handle = disk.open("/d/f")
        disk.pwritev(handle, [b"c"], SECTOR_BYTES + 1)
        disk.fdatasync(handle)
        assert rot.is_healed(platter) == has_reached
        healed.add(has_reached)
    assert False in healed


def test_a_full_disk_refuses_to_grow_and_still_overwrites() -> None:
    platter = Platter(Random(1))
    disk = disk_of(platter)
    handle = disk.open("/d/f", create=True)
    disk.pwritev(handle, [A], 0)
    platter.capacity_bytes = SECTOR_BYTES
    disk.pwritev(handle, [B], 0)
    with pytest.raises(OSError) as refused:
        disk.pwritev(handle, [B], SECTOR_BYTES)
    assert refused.value.errno == errno.ENOSPC


def test_a_lock_ends_with_the_power() -> None:
    platter = Platter(Random(1))
    first, second = disk_of(platter), disk_of(platter)
    assert first.lock(first.open("/d/LOCK", create=True))
    assert not second.lock(second.open("/d/LOCK"))
    platter.crash()
    third = disk_of(platter)
    assert third.lock(third.open("/d/LOCK", create=True))


@virtual_time
async def test_a_job_whose_caller_is_cancelled_is_done_all_the_same() -> None:
    disk = disk_of(Platter(Random(1)))
    done = asyncio.Event()
    caller = asyncio.create_task(disk.run(done.set))
    await settle()
    caller.cancel()
    await done.wait()
    assert caller.cancelled()


@virtual_time
async def test_a_shutdown_waits_for_the_jobs_that_have_begun() -> None:
    disk = disk_of(Platter(Random(1)))
    caller = asyncio.create_task(disk.run(lambda: "done"))
    await settle()
    disk.shutdown()
    assert await caller == "done"


def test_a_write_that_fails_may_have_begun() -> None:
    assert {left_of_a_failed_write(seed) for seed in SEEDS} == {b"aaaa", b"baaa", b"bbaa", b"bbba", b"bbbb"}


def left_of_a_failed_write(seed: int) -> bytes:
    """What is read of four bytes a that were to be overwritten with b."""
    platter = Platter(Random(seed))
    mood = DiskMood()
    disk = disk_of(platter, mood)
    handle = disk.open("/d/f", create=True)
    disk.pwritev(handle, [b"aaaa"], 0)
    mood.trap = Trap(1, lambda: None)
    with pytest.raises(OSError, match="Input/output error"):
        disk.pwritev(handle, [b"bbbb"], 0)
    return disk.pread(handle, 4, 0)


@pytest.mark.parametrize("is_synced", [True, False])
def test_what_was_in_a_removed_directory_is_gone_when_its_parent_is_synced(is_synced: bool) -> None:
    outcomes = set()
    for seed in range(20):
        platter = Platter(Random(seed))
        for directory in ("/d", "/d/sub"):
            platter.mkdir(directory)
        for name in ("a", "b"):
            platter.create(f"/d/sub/{name}")
        platter.sync_directory("/d/sub")
        for name in ("a", "b"):
            platter.unlink(f"/d/sub/{name}")
        platter.rmdir("/d/sub")
        if is_synced:
            platter.sync_directory("/d")
        platter.crash()
        outcomes.add((platter.exists("/d/sub"), len(platter.paths())))
    if is_synced:
        assert outcomes == {(False, 0)}
    else:
        assert outcomes == {(False, 0), (True, 0), (True, 1), (True, 2)}
