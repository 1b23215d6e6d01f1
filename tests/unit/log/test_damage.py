"""What a log lacks is found exactly, and taken back only where it is proven to be what was written."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dledger.common.batch import build_body, crc32c
from dledger.common.config import Limits
from dledger.common.errors import CorruptLog, DiskError
from dledger.common.types import LogPoint, Position
from dledger.disk.disk import OsDisk
from dledger.log.damage.damaged_log import DamagedLog, open_damaged
from dledger.log.file_log import FileLog
from dledger.log.frame.frame import Frame, make_frame
from dledger.log.frame.scan import FrameScanner
from dledger.log.log_api import Damaged, DamagedRange
from dledger.log.segment import damage as damage_module
from dledger.log.segment.damage import Hole, Reach
from dledger.log.segment.segment import FIRST_PAGE_BYTES, Segment, corrupt
from tests.unit.log.harness import (
    MEMBERS,
    CarelessDisk,
    Witness,
    abandon,
    all_frames,
    data_frame,
    files_of,
    frames_after,
    open_at,
    opened,
    segments_of,
    state_behind,
    write_log,
)

FRAME_BYTES = 200
"""What each of ``write_log``'s frames takes."""


def offset_of(at: int) -> int:
    """Of frame ``at``, counted from 0, of a segment."""
    return FIRST_PAGE_BYTES + at * FRAME_BYTES


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def flip(path: Path, offset: int, bit: int = 0x04) -> None:
    overwrite(path, offset, bytes([path.read_bytes()[offset] ^ bit]))


async def frames_of(directory: Path) -> list[Frame]:
    async with opened(directory, CarelessDisk()) as log:
        return await all_frames(log)


async def damaged_at(directory: Path) -> DamagedLog:
    """The log in ``directory``, which cannot be opened."""
    with pytest.raises(CorruptLog) as why:
        await open_at(directory, CarelessDisk())
    return await open_damaged(CarelessDisk(), directory, "default", members=MEMBERS, why=why.value)


def between(good: Sequence[Frame], damaged: DamagedRange) -> list[Frame]:
    return [frame for frame in good if damaged.first <= frame.header.position <= damaged.last]


async def repair_all(log: DamagedLog, good: Sequence[Frame]) -> None:
    for damaged in log.damaged():
        await log.repair(damaged, between(good, damaged))
    assert not log.damaged()


async def test_what_was_read_before_a_repair_is_read_again_when_it_did_not_match(tmp_path: Path) -> None:
    """A slow read finds what others have found, and taken back, meanwhile."""
    await write_log(tmp_path, 6)
    good, [first, *_] = await frames_of(tmp_path), segments_of(tmp_path)
    async with opened(tmp_path, CarelessDisk()) as log:
        flip(first, offset_of(2) + 100)
        with pytest.raises(Damaged) as found:
            await log.read(Position(3), 1)
        tries = 0

        async def slow() -> str:
            nonlocal tries
            tries += 1
            if tries == 1:
                await log.repair(found.value.range, between(good, found.value.range))
                raise corrupt(str(first), offset_of(2), "read before the repair")
            return "good"

        assert await log._reader.undisturbed(slow) == "good"
        assert log.failure is None


def spans(log: DamagedLog) -> list[tuple[int, int]]:
    return [(damaged.first, damaged.last) for damaged in log.damaged()]


async def test_a_flip_of_any_byte_of_any_frame_is_one_range_and_is_repaired(tmp_path: Path) -> None:
    await write_log(tmp_path / "whole", 4, size_bytes=20)
    good = await frames_of(tmp_path / "whole")
    path = segments_of(tmp_path / "whole")[0]
    content, offset = path.read_bytes(), FIRST_PAGE_BYTES
    for frame in good:
        for at in range(offset, offset + frame.header.stored_bytes):
            directory = tmp_path / "damaged"
            shutil.copytree(tmp_path / "whole", directory)
            flip(directory / path.name, at)
            log = await damaged_at(directory)
            assert spans(log) == [(frame.header.position, frame.header.position)]
            assert log.last == good[-1].header.point
            await repair_all(log, good)
            await log.close()
            assert (directory / path.name).read_bytes()[FIRST_PAGE_BYTES:] == content[FIRST_PAGE_BYTES:]
            assert [each.raw for each in await frames_of(directory)] == [each.raw for each in good]
            shutil.rmtree(directory)
        offset += frame.header.stored_bytes


@pytest.mark.parametrize("crash", [True, False])
async def test_several_holes_of_the_active_segment_are_told_apart(tmp_path: Path, crash: bool) -> None:
    await write_log(tmp_path, 40, crash=crash)
    path = segments_of(tmp_path)[0]
    good = [frame for frame in await frames_of(tmp_path) if frame.header.position <= 40]
    overwrite(path, offset_of(3) + 8, b"\xff" * 16)
    overwrite(path, offset_of(10) + 50, b"\xff" * 2 * FRAME_BYTES)
    overwrite(path, offset_of(39), bytes(FRAME_BYTES))
    log = await damaged_at(tmp_path)
    assert spans(log) == [(4, 4), (11, 13), (40, 40)]
    assert log.last == good[-1].header.point
    await repair_all(log, good)
    await log.close()
    assert await frames_of(tmp_path) != []
    assert [frame.raw for frame in await frames_of(tmp_path)] == [frame.raw for frame in good]


async def test_what_is_good_is_read_around_what_is_not(tmp_path: Path) -> None:
    await write_log(tmp_path, 40)
    for at in (0, 5, 6, 39):
        overwrite(segments_of(tmp_path)[0], offset_of(at), b"\xff" * 100)
    log = await damaged_at(tmp_path)
    seen = []
    for position in range(1, 41):
        try:
            seen += [frame.header.position for frame in await log.read(Position(position), 1)]
        except Damaged:
            continue
    await log.close()
    assert seen == [position for position in range(1, 41) if position not in (1, 6, 7, 40)]


async def test_every_frame_of_a_log_may_be_damaged(tmp_path: Path) -> None:
    await write_log(tmp_path, 40)
    good = await frames_of(tmp_path)
    path = segments_of(tmp_path)[0]
    overwrite(path, FIRST_PAGE_BYTES, b"\xaa" * (len(path.read_bytes()) - FIRST_PAGE_BYTES))
    log = await damaged_at(tmp_path)
    assert spans(log) == [(1, 40)]
    await repair_all(log, good)
    await log.close()
    assert [frame.raw for frame in await frames_of(tmp_path)] == [frame.raw for frame in good]


async def test_frames_behind_the_mark_count_as_promised(tmp_path: Path) -> None:
    log = await open_at(tmp_path)
    witness = Witness(log)
    log.append(frames_after(log, 5))
    await witness.all_durable()
    log.append(frames_after(log, 5))
    await witness.all_durable()
    last = log.last
    await abandon(log)
    overwrite(segments_of(tmp_path)[0], offset_of(4), bytes(50))  # the mark names 5, and 6 to 10 are durable too
    damaged = await damaged_at(tmp_path)
    assert (spans(damaged), damaged.last) == ([(5, 5)], last)
    assert (await damaged.read(Position(8), 1))[0].header.position == 8
    await damaged.close()


async def test_a_record_that_holds_a_frame_is_not_taken_for_one(tmp_path: Path) -> None:
    log = await open_at(tmp_path)
    witness = Witness(log)
    log.append(frames_after(log, 3))
    decoy = data_frame(log.last._replace(position=Position(log.last.position + 2)), 6, [b"decoy"])
    log.append([data_frame(log.last, log.state.next_index, [b"x" * 5 + decoy.raw * 4])])
    log.append(frames_after(log, 30))
    await witness.all_durable()
    good = await all_frames(log)
    await log.close()
    overwrite(segments_of(tmp_path)[0], offset_of(3) + 20, b"\xff" * 4)
    damaged = await damaged_at(tmp_path)
    assert spans(damaged) == [(4, 4)]
    await repair_all(damaged, good)
    await damaged.close()


async def test_frames_of_another_log_are_refused(tmp_path: Path) -> None:
    await write_log(tmp_path, 10)
    good = await frames_of(tmp_path)
    overwrite(segments_of(tmp_path)[0], offset_of(4), bytes(FRAME_BYTES * 2))
    before = segments_of(tmp_path)[0].read_bytes()
    log = await damaged_at(tmp_path)
    (damaged,) = log.damaged()
    body = build_body([b"y" * 100])
    other = make_frame(
        good[4].header.point, term=1, base_index=5, count=1, body=body, body_crc=crc32c(body), timestamp_ms=1005
    )
    for wrong in ([], [good[4]], [good[4], other], [good[5], good[4]], good[3:6], good[4:7]):
        with pytest.raises(CorruptLog):
            await log.repair(damaged, wrong)
    assert log.damaged() == [damaged]
    await log.close()
    assert segments_of(tmp_path)[0].read_bytes() == before


async def test_a_repair_that_a_crash_cut_short_is_done_again(tmp_path: Path) -> None:
    await write_log(tmp_path, 10)
    good = await frames_of(tmp_path)
    overwrite(segments_of(tmp_path)[0], offset_of(4), bytes(FRAME_BYTES * 3))
    for written in range(0, 3 * FRAME_BYTES, 50):
        directory = tmp_path / "torn"
        shutil.copytree(tmp_path, directory, ignore=shutil.ignore_patterns("torn"))
        overwrite(segments_of(directory)[0], offset_of(4), b"".join(frame.raw for frame in good[4:7])[:written])
        log = await damaged_at(directory)
        await repair_all(log, good)
        await log.close()
        assert [frame.raw for frame in await frames_of(directory)] == [frame.raw for frame in good]
        shutil.rmtree(directory)


async def test_a_sealed_segment_is_repaired_while_the_log_is_open(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    good = await frames_of(tmp_path)
    first = segments_of(tmp_path)[0]
    whole = first.read_bytes()
    overwrite(first, offset_of(7), b"\xff" * FRAME_BYTES * 4)
    async with opened(tmp_path) as log:
        with pytest.raises(Damaged):
            await log.read(Position(10), 1)
        (damaged,) = log.damaged()
        assert (damaged.first, damaged.last) == (8, 11)
        assert (await log.read(Position(12), 1))[0].raw == good[11].raw
        await log.repair(damaged, between(good, damaged))
        assert [frame.raw for frame in await all_frames(log)] == [frame.raw for frame in good]
    assert first.read_bytes() == whole


async def test_readers_that_give_up_do_not_keep_damage_from_being_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large segment takes longer to read than a reader's patience lasts."""
    await write_log(tmp_path, 300)
    overwrite(segments_of(tmp_path)[0], offset_of(7), b"\xff" * FRAME_BYTES)
    may_go_on, looks = threading.Event(), 0
    async with opened(tmp_path) as log:
        look = log._files.look

        def slow_look(segment: Segment, reach: Reach) -> list[Hole]:
            nonlocal looks
            looks += 1
            may_go_on.wait()
            return look(segment, reach)

        monkeypatch.setattr(log._files, "look", slow_look)
        for _ in range(3):
            reading = asyncio.ensure_future(log.read(Position(8), 1))
            await asyncio.wait([reading], timeout=0.05)  # its patience
            reading.cancel()
            await asyncio.wait([reading])
        may_go_on.set()
        with pytest.raises(Damaged):
            await log.read(Position(8), 1)
    assert looks == 1


@pytest.mark.parametrize("how", ["trimmed", "truncated", "reset"])
async def test_damage_that_leaves_the_log_is_told_of_as_it_was_when_it_was_found(tmp_path: Path, how: str) -> None:
    """Who does not lead for it may lead again."""
    await write_log(tmp_path, 300)
    overwrite(segments_of(tmp_path)[0], offset_of(7), b"\xff" * FRAME_BYTES)
    told: list[bool] = []
    async with opened(tmp_path) as log:
        log.set_callbacks(lambda _: None, lambda _: None, on_damage=lambda: told.append(bool(log.damaged())))
        with pytest.raises(Damaged):
            await log.read(Position(8), 1)
        if how == "trimmed":
            await log.trim(log.boundaries()[0].trim)
        elif how == "truncated":
            await log.truncate(Position(5))
        else:
            await log.reset(await state_behind(400))
    assert told == [True, False]


@pytest.mark.parametrize("how", ["footer", "trailer"])
async def test_damage_beside_a_bad_footer_or_trailer_is_found_and_repaired(tmp_path: Path, how: str) -> None:
    await write_log(tmp_path, 300)
    good = await frames_of(tmp_path)
    path = segments_of(tmp_path)[0]
    size_bytes = path.stat().st_size
    flip(path, size_bytes - (1 if how == "trailer" else 80))
    flip(path, offset_of(3))
    last = between(good, DamagedRange(Position(1), Position(10_000), good[0].header.point))[-1]
    async with opened(tmp_path) as log:
        log.append([data_frame(last.header.point, last.header.end_index)])
        await Witness(log).all_durable()
        with pytest.raises(Damaged):
            await all_frames(log)
        (damaged,) = log.damaged()
        await log.repair(damaged, between(good, damaged))
        assert [frame.raw for frame in await all_frames(log)][:300] == [frame.raw for frame in good]


async def test_a_log_whose_marks_and_frames_are_beyond_repair_stays_shut(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    segments_of(tmp_path)[2].unlink()
    with pytest.raises(CorruptLog) as why:
        await open_at(tmp_path)
    with pytest.raises(CorruptLog):
        await open_damaged(CarelessDisk(), tmp_path, "default", members=MEMBERS, why=why.value)


async def test_a_disk_that_fails_while_a_damaged_log_is_looked_at_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_log(tmp_path, 300)

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(OsDisk, "pread", fail)
    with pytest.raises(DiskError, match=str(tmp_path)):
        await open_damaged(CarelessDisk(), tmp_path, "default", members=MEMBERS, why=CorruptLog("a frame is damaged"))


async def test_damage_in_front_of_the_active_segment_without_small_states_is_repaired(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    good = await frames_of(tmp_path)
    for state in files_of(tmp_path, ".state")[1:]:
        state.unlink()
    for path in segments_of(tmp_path)[:3]:
        overwrite(path, offset_of(2), b"\xff" * FRAME_BYTES)
    log = await damaged_at(tmp_path)
    assert len(log.damaged()) == 3
    await repair_all(log, good)
    await log.close()
    assert [frame.raw for frame in await frames_of(tmp_path)] == [frame.raw for frame in good]


async def test_an_older_segment_whose_file_was_cut_short_is_whole_again(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    good = await frames_of(tmp_path)
    os.truncate(segments_of(tmp_path)[1], offset_of(5))
    async with opened(tmp_path, CarelessDisk()) as log:
        with pytest.raises(Damaged):
            await all_frames(log)
        for damaged in log.damaged():
            await log.repair(damaged, between(good, damaged))
        assert [frame.raw for frame in await all_frames(log)] == [frame.raw for frame in good]
    assert [frame.raw for frame in await frames_of(tmp_path)] == [frame.raw for frame in good]


async def test_what_looks_like_the_next_frame_is_not_taken_for_it(tmp_path: Path) -> None:
    """A record of the frame whose header rotted holds it; more bytes would be explained by it than by the real one."""
    async with opened(tmp_path, CarelessDisk(), Limits(segment_max_bytes=1 << 20)) as log:
        witness = Witness(log)
        log.append(frames_after(log, 4))
        log.append([decoy_in_a_frame(log)])
        log.append(frames_after(log, 3))
        await witness.all_durable()
        good = await all_frames(log)
        flip(segments_of(tmp_path)[0], offset_of(4) + 20)
        log._cache.truncate(0)
        await log.scrub(Position(1))
        assert [(each.first, each.last) for each in log.damaged()] == [(5, 5)]
        (missing,) = log.damaged()
        await log.repair(missing, [good[4]])
        assert [frame.raw for frame in await all_frames(log)] == [frame.raw for frame in good]


def decoy_in_a_frame(log: FileLog) -> Frame:
    """The next frame of ``log``, with a record that passes for the one behind it."""
    point = LogPoint(Position(log.last.position + 1), log.last.term, 4711)
    decoy = data_frame(point, log.state.next_index + 1, [b"y" * 40_000])
    return data_frame(log.last, log.state.next_index, [decoy.raw])


async def test_one_bad_header_costs_no_more_than_the_way_that_misses_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many small frames behind it might be the next good one; the first of them is."""
    log = await open_at(tmp_path, OsDisk(), Limits())
    witness = Witness(log)
    log.append(frames_after(log, 300, 1))
    await witness.all_durable()
    segment = log._files.active
    flip(Path(segment.path), FIRST_PAGE_BYTES + 4)
    walks = list[FrameScanner]()

    class Counted(FrameScanner):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            walks.append(self)

    monkeypatch.setattr(damage_module, "FrameScanner", Counted)
    reach = log._files.reach_of(segment, log.last, log.state.next_index)
    (hole,) = log._files.look(segment, reach)
    assert (hole.first, hole.last) == (1, 1)
    assert len(walks) == 2
    await log.close()
