"""A place on the disk that the device does not give back (EIO): others have what was there, and it is repaired."""

from __future__ import annotations

import asyncio
import errno
from functools import partial

import pytest

from dledger.common.config import Timings
from dledger.common.errors import CorruptLog, DiskError
from dledger.common.types import Consistency, Entry, Position
from tests.simulation.host import SimHost
from tests.simulation.platter import PAGE_BYTES, SECTOR_BYTES, SimFile
from tests.simulation.process import in_world
from tests.unit.group.rot import append, append_one, frames, level, places, rot, rotting, segments, until

BAD = Position(70)


def spoil(host: SimHost, position: Position = BAD) -> SimFile:
    """The page where this frame begins cannot be read any more."""
    file, offset, _ = places(host)[position]
    file.unreadable.add(offset // PAGE_BYTES)
    return file


@in_world
async def test_the_scrub_finds_it_and_goes_on_behind_it() -> None:
    async with rotting(appends=200, timings=Timings(scrub_period_s=60)) as (cluster, (_, patient, _other)):
        good = frames(patient)
        file = spoil(patient)
        rot(patient, 150)
        await until(lambda: patient.replica.metrics.scrub_passes > 0, within_s=600)
        await until(lambda: not patient.replica.log.damaged())
        assert not file.unreadable
        assert frames(patient) == good
        await level(cluster)


@in_world
async def test_a_record_that_the_leader_cannot_read_is_served_when_another_has_given_it_back() -> None:
    async with rotting(appends=200) as (cluster, (leader, *_)):
        (frame,) = await leader.replica.log.read(BAD, 1)
        index = frame.header.base_index
        file = spoil(leader)
        forget_cached(leader)

        with pytest.raises(CorruptLog, match="ask another node"):
            await leader.ask(partial(read, leader, index))
        await until(lambda: bool(cluster.leaders()) and cluster.leaders()[0].replica.core.is_ready)
        (successor,) = cluster.leaders()
        assert await successor.ask(partial(read, successor, index)) == frame.entry(index)
        await until(lambda: not file.unreadable)


async def read(host: SimHost, index: int) -> Entry:
    reader = host.replica.reader
    return await reader.get(index, await reader.read_point(Consistency.LINEARIZABLE))


def forget_cached(host: SimHost) -> None:
    """What was written lately is kept in memory, and would be read from there."""
    host.replica.log._cache.truncate(0)  # type: ignore[attr-defined]


@in_world
async def test_a_leader_goes_on_though_a_follower_needs_what_it_cannot_read() -> None:
    async with rotting(appends=200) as (cluster, (leader, patient, _)):
        await patient.stop()
        patient.wipe()
        file = spoil(leader)
        forget_cached(leader)
        await patient.start()
        await until(lambda: not file.unreadable)
        await until(lambda: bool(cluster.leaders()))
        await append(cluster.leaders()[0], 3)
        await level(cluster)
        assert leader.replica.failure is None


@in_world
async def test_a_read_that_the_device_refuses_once_is_done_again() -> None:
    async with rotting(appends=200) as (_, (_leader, patient, _other)):
        forget_cached(patient)
        file = spoil(patient)
        log = patient.replica.log
        reading = patient.ask(lambda: log.read(BAD, 1))
        asyncio.get_running_loop().call_soon(file.unreadable.clear)
        assert (await reading)[0].header.position == BAD
        assert not log.damaged()


@in_world
async def test_a_bit_that_is_wrong_in_memory_alone_ends_nothing() -> None:
    """The disk has it right, and reading it from there, as is done to find what is damaged, mends it."""
    async with rotting(appends=200) as (_, (_leader, patient, _other)):
        forget_cached(patient)
        file, offset, size_bytes = places(patient)[BAD]
        at = offset + size_bytes // 2
        file.data[at] ^= 0x10
        file.lost.add(at // SECTOR_BYTES)
        log = patient.replica.log
        assert (await patient.ask(lambda: log.read(BAD, 1)))[0].header.position == BAD
        assert patient.replica.failure is None
        assert not log.damaged()


@in_world
async def test_a_device_that_refuses_frames_again_and_again_and_then_gives_them_back_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It gives them to who looks for damage, and to nobody else: nothing is there to be repaired."""
    async with rotting(appends=200) as (_, (_leader, patient, _other)):
        forget_cached(patient)
        file = spoil(patient)
        files = patient.replica.log._files  # type: ignore[attr-defined]
        look = files.look

        def readable(*args: object) -> object:
            bad, file.unreadable = file.unreadable, set()
            try:
                return look(*args)
            finally:
                file.unreadable = bad

        monkeypatch.setattr(files, "look", readable)
        with pytest.raises(DiskError, match="see to the disk"):
            await patient.ask(lambda: patient.replica.log.read(BAD, 1))
        assert patient.replica.failure is None


def end_of_frames(host: SimHost, *, of_last_segment: bool) -> tuple[SimFile, int]:
    """Of the first segment's file or the last one's."""
    where = list(places(host).values())
    file = where[-1 if of_last_segment else 0][0]
    return file, max(offset + size_bytes for each, offset, size_bytes in where if each is file)


@in_world
async def test_the_page_that_the_frames_of_a_sealed_segment_share_with_its_footer_is_repaired() -> None:
    """The footer is built again from the frames, also by the next start."""
    async with rotting(appends=200, timings=Timings(scrub_period_s=60)) as (cluster, (_, patient, _other)):
        good = frames(patient)
        file, end = end_of_frames(patient, of_last_segment=False)
        assert end % PAGE_BYTES
        file.unreadable.add(end // PAGE_BYTES)
        await until(lambda: not file.unreadable, within_s=600)
        await until(lambda: not patient.replica.log.damaged())
        patient.crash()
        await patient.start()
        assert frames(patient) == good
        await level(cluster)


@in_world
async def test_good_frames_beside_a_hole_are_not_overwritten_where_their_page_cannot_be_read_meanwhile() -> None:
    async with rotting(appends=200) as (_, (leader, patient, _other)):
        log = patient.replica.log
        where = places(patient)
        file = segments(patient)[0]
        bad, (_, offset, size_bytes) = next(
            (position, place) for position, place in sorted(where.items()) if place[0] is file and straddles(*place[1:])
        )
        others = {position: place for position, place in where.items() if position != bad}
        stored = {position: bytes(each.data[at : at + size]) for position, (each, at, size) in others.items()}
        right = await leader.ask(lambda: leader.replica.log.read(bad, 1))
        patient.replica.exchange.repairer.stop()
        rot(patient, bad)
        await until_found(patient, bad)
        file.unreadable.add((offset + size_bytes) // PAGE_BYTES)

        with pytest.raises(CorruptLog, match="takes no frames there"):
            await patient.ask(lambda: log.repair(log.damaged()[0], right[:1]))
        assert {position: bytes(each.data[at : at + size]) for position, (each, at, size) in others.items()} == stored
        assert log.damaged()
        assert patient.replica.failure is None


@in_world
async def test_a_device_that_does_not_take_the_pages_whole_either_is_refused_and_the_node_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rotting(appends=200) as (_, (leader, patient, _other)):
        log = patient.replica.log
        file, end = end_of_frames(patient, of_last_segment=False)
        bad = max(position for position, place in places(patient).items() if place[0] is file)
        right = await leader.ask(lambda: leader.replica.log.read(bad, 1))
        patient.replica.exchange.repairer.stop()
        rot(patient, bad)
        await until_found(patient, bad)
        file.unreadable.add(end // PAGE_BYTES)
        monkeypatch.setattr(patient.life.disk, "pwritev", refuse)

        with pytest.raises(CorruptLog, match="takes no frames there"):
            await patient.ask(lambda: log.repair(log.damaged()[0], right[:1]))
        monkeypatch.undo()
        assert patient.replica.failure is None


def straddles(offset: int, size_bytes: int) -> bool:
    """Whether it ends in another page than it begins in."""
    return offset // PAGE_BYTES < (offset + size_bytes) // PAGE_BYTES


def refuse(*_args: object) -> int:
    raise OSError(errno.EIO, "Input/output error")


async def until_found(host: SimHost, bad: Position) -> None:
    log, position = host.replica.log, Position(1)
    while not log.damaged():
        position = await host.ask(partial(log.scrub, position))
    assert [(damaged.first, damaged.last) for damaged in log.damaged()] == [(bad, bad)]


@in_world
async def test_the_page_in_which_the_log_ends_is_left_and_the_node_goes_on_as_a_follower() -> None:
    """Somebody may write there: it is not written whole."""
    async with rotting(appends=200, timings=Timings(scrub_period_s=60)) as (_, (_leader, patient, _other)):
        file, end = end_of_frames(patient, of_last_segment=True)
        file.unreadable.add((end - 1) // PAGE_BYTES)
        await until(lambda: bool(patient.replica.log.damaged()), within_s=600)
        await asyncio.sleep(100)
        assert patient.replica.failure is None
        assert patient.replica.log.damaged()


@in_world
async def test_a_page_of_zeros_that_cannot_be_read_is_missed_too() -> None:
    async with rotting(appends=60, timings=Timings(scrub_period_s=60)) as (cluster, (leader, patient, _)):
        await leader.ask(partial(append_one, leader, bytes(3 * PAGE_BYTES)))
        await append(leader, 60)
        await level(cluster)
        file, offset, _size = max(places(patient).values(), key=lambda place: place[2])
        page = offset // PAGE_BYTES + 1
        assert not any(file.data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])
        file.unreadable.add(page)
        await until(lambda: not file.unreadable, within_s=600)
