"""Group commit: one sync in flight, what rides on it, when a mark is written, and that the first error is the last."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dledger.common.config import Timings
from dledger.common.errors import Code, DiskError, DLedgerError
from dledger.common.types import GENESIS, Durability, LogPoint, Position, Term
from dledger.disk.group_commit import GroupCommit
from dledger.disk.syncer import Handle, OnSynced
from dledger.log.segment.segment import FIRST_PAGE_BYTES, Segment, SegmentHeader, unpack_mark
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.sync_marks import LogEnd, SyncMarks, log_end
from tests.support.virtual_time import virtual_time
from tests.unit.log.harness import CarelessDisk

TIMINGS = Timings(sync_mark_interval_ms=5, sync_mark_idle_ms=10, sync_interval_ms=50)


@dataclass
class HandSyncer:
    """Syncs end when the test says so."""

    begun: list[tuple[list[Handle], list[str]]] = field(default_factory=list)
    waiting: list[OnSynced] = field(default_factory=list)

    def sync(self, handles: Sequence[Handle], directories: Sequence[str], on_done: OnSynced) -> None:
        self.begun.append((list(handles), list(directories)))
        self.waiting.append(on_done)

    def end(self, reason: OSError | None = None) -> None:
        """The oldest one in flight."""
        self.waiting.pop(0)(reason)

    def close(self) -> None:
        assert not self.waiting


class Bench:
    """A group commit over one segment, whose frames are positions only."""

    def __init__(self, directory: Path, durability: Durability = Durability.FSYNC) -> None:
        self.disk = CarelessDisk()
        self.files = SegmentFiles(self.disk, directory, "default")
        self.syncer = HandSyncer()
        self.segment = self.add_segment(GENESIS)
        self.durable: list[int] = []
        self.synced: list[int] = []
        self.failures: list[DLedgerError] = []
        self.commit = GroupCommit(
            self.files,
            str(directory),
            syncer=self.syncer,
            write_mark=SyncMarks(self.files, Position(0)).write,
            durability=durability,
            timings=TIMINGS,
            end=log_end(self.segment, GENESIS, FIRST_PAGE_BYTES),
            on_synced=self.synced.append,
        )
        self.commit.on_durable = self.durable.append
        self.commit.on_failure = self.failures.append

    def add_segment(self, previous: LogPoint) -> Segment:
        path, handle = self.files.make(2 * FIRST_PAGE_BYTES)
        segment = self.files.adopt(path, handle, SegmentHeader("default", previous.position, previous), 0)
        self.files.segments.append(segment)
        return segment

    def write(self, position: int, *, after_turn: bool = False) -> None:
        self.commit.written([self.segment], self.end_at(position), after_turn=after_turn)

    def end_at(self, position: int) -> LogEnd:
        return log_end(self.segment, point(position), FIRST_PAGE_BYTES + 8 * position)

    def mark(self) -> int | None:
        """The position of the sync mark in the file."""
        assert self.segment.handle is not None
        mark = unpack_mark(self.disk.pread(self.segment.handle, FIRST_PAGE_BYTES, 0))
        return mark.point.position if mark is not None else None

    @property
    def is_clean(self) -> bool:
        with self.files.reading(self.segment) as handle:
            mark = unpack_mark(self.disk.pread(handle, FIRST_PAGE_BYTES, 0))
        return mark is not None and mark.clean


def point(position: int) -> LogPoint:
    return LogPoint(Position(position), Term(1), position)


@virtual_time
async def test_what_is_written_during_a_sync_rides_on_the_next(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for position in (1, 2, 3):
        bench.write(position)
    assert len(bench.syncer.begun) == 1
    bench.syncer.end()
    assert (bench.durable, len(bench.syncer.begun)) == ([1], 2)
    bench.syncer.end()
    assert (bench.durable, bench.synced, bench.commit.durable) == ([1, 3], [1, 3], 3)
    assert len(bench.syncer.begun) == 2


@virtual_time
async def test_a_sync_may_begin_after_the_turn_of_the_loop(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(1, after_turn=True)
    bench.write(2, after_turn=True)
    assert not bench.syncer.begun
    await asyncio.sleep(0)
    assert len(bench.syncer.begun) == 1
    bench.syncer.end()
    assert bench.durable == [2]


@virtual_time
async def test_a_roll_has_both_files_and_the_directory_synced_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    old = bench.segment
    bench.segment = new = bench.add_segment(point(1))
    bench.commit.rolled()
    bench.commit.written([old, new], bench.end_at(2))
    assert bench.syncer.begun == [([old.handle, new.handle], [str(tmp_path)])]
    bench.syncer.end()
    bench.write(3)
    assert bench.syncer.begun[1][1] == []


@virtual_time
async def test_a_mark_rides_with_a_group_when_the_last_one_is_old_enough(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(1)
    bench.syncer.end()
    bench.write(2)
    bench.syncer.end()
    assert bench.mark() == 1  # the first ever is old enough
    bench.write(3)
    bench.syncer.end()
    assert bench.mark() == 1
    await asyncio.sleep(0.006)
    bench.write(4)
    assert bench.mark() == 3
    assert len(bench.syncer.begun) == 4


@virtual_time
async def test_a_mark_is_written_alone_after_idling(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(1)
    bench.syncer.end()
    await asyncio.sleep(0.009)
    assert bench.mark() is None
    await asyncio.sleep(0.012)
    assert (bench.mark(), len(bench.syncer.begun)) == (1, 2)
    bench.syncer.end()
    await asyncio.sleep(1)
    assert len(bench.syncer.begun) == 2
    assert bench.durable == [1]


@virtual_time
async def test_a_mark_never_names_what_no_sync_has_covered(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for position in range(1, 30):
        bench.write(position)
        await asyncio.sleep(0.006)
        bench.syncer.end()
        assert (bench.mark() or 0) <= bench.durable[-1]
    bench.write(99)
    await asyncio.sleep(1)
    assert bench.mark() == 29


@virtual_time
async def test_the_first_error_is_told_once_and_final(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(1)
    bench.write(2)
    bench.syncer.end(OSError(errno.EIO, "injected"))
    bench.write(3)
    await asyncio.sleep(1)
    assert (len(bench.syncer.begun), bench.durable, bench.commit.durable) == (1, [], 0)
    assert [failure.code for failure in bench.failures] == [Code.DISK_ERROR]
    await bench.commit.close()
    assert (len(bench.syncer.begun), bench.mark()) == (1, None)


@virtual_time
async def test_a_completion_from_before_a_restart_is_dropped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(1)
    bench.syncer.end()
    bench.write(9)

    async def restart() -> None:
        async with bench.commit.stopped():
            bench.commit.restarted(bench.end_at(1))

    restarting = asyncio.create_task(restart())
    await asyncio.sleep(0)
    assert not restarting.done()
    bench.syncer.end()
    await restarting
    assert (bench.durable, bench.synced, bench.commit.durable) == ([1], [1], 1)
    bench.write(2)
    bench.syncer.end()
    assert bench.durable == [1, 2]


@virtual_time
async def test_nothing_begins_while_it_is_stopped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(1)
    bench.syncer.end()
    bench.write(2, after_turn=True)
    async with bench.commit.stopped():
        await asyncio.sleep(1)
        assert len(bench.syncer.begun) == 1
        bench.commit.restarted(bench.end_at(5))
    assert (bench.durable, bench.commit.durable) == ([1, 5], 5)


@virtual_time
async def test_an_error_of_the_disk_while_it_is_stopped_is_final(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with pytest.raises(DiskError):
        async with bench.commit.stopped():
            raise OSError(errno.EIO, "injected")
    bench.write(1)
    assert not bench.syncer.begun
    with pytest.raises(DiskError):
        async with bench.commit.stopped():
            pytest.fail("a log that failed is not changed")


@virtual_time
async def test_a_close_syncs_what_is_left_and_says_that_it_was_in_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(1)
    bench.write(2)
    closing = asyncio.create_task(bench.commit.close())
    while not closing.done():
        if bench.syncer.waiting:
            bench.syncer.end()
        await asyncio.sleep(0)
    assert (bench.durable[-1], bench.mark(), bench.is_clean) == (2, 2, True)


@virtual_time
async def test_an_interval_counts_what_is_written_and_syncs_in_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Durability.INTERVAL)
    bench.write(1)
    bench.write(2)
    await asyncio.sleep(0)
    assert (bench.durable, bench.syncer.begun) == ([2], [])
    await asyncio.sleep(0.051)
    assert len(bench.syncer.begun) == 1
    bench.syncer.end()
    assert bench.synced == [2]


@virtual_time
async def test_without_durability_only_a_roll_is_synced(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Durability.NONE)
    bench.write(1)
    await asyncio.sleep(10)
    assert (bench.durable, bench.syncer.begun) == ([1], [])
    bench.commit.rolled()
    bench.write(2)
    assert len(bench.syncer.begun) == 1


@virtual_time
async def test_the_age_of_the_sync_in_flight_is_known(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.commit.sync_age_s == 0
    bench.write(1)
    await asyncio.sleep(2)
    assert bench.commit.sync_age_s == pytest.approx(2)
    bench.syncer.end()
    assert bench.commit.sync_age_s == 0


@virtual_time
async def test_a_file_stays_open_while_a_sync_of_it_is_in_flight(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(1)
    bench.files.close(bench.segment)
    assert bench.segment.handle is not None
    bench.syncer.end()
    assert bench.segment.handle is None
