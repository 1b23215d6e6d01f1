"""A start: what a crash explains is cut, what it cannot explain stops the node, and nothing bad is ever served."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from dledger.common.errors import CorruptLog
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle
from dledger.log.log_api import Damaged
from dledger.log.segment.segment import (
    FIRST_PAGE_BYTES,
    SECTOR_BYTES,
    SEGMENT_SUFFIX,
    TRAILER_BYTES,
    SegmentHeader,
    pack_first_page,
)
from tests.unit.log.harness import (
    CarelessDisk,
    FaultyDisk,
    Witness,
    abandon,
    all_frames,
    files_of,
    frames_after,
    open_at,
    opened,
    segments_of,
    write_log,
)


def flip(path: Path, offset: int, bit: int = 0x04) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[offset] ^= bit
    path.write_bytes(damaged)


async def crashed_with_a_tail(directory: Path, marked: int, tail: int) -> list[int]:
    """A crashed log whose mark is at frame ``marked``, with ``tail`` frames behind it. Returns where those end."""
    await write_log(directory, marked)
    disk = FaultyDisk()
    log = await open_at(directory, disk)
    Witness(log)
    disk.sync_error = OSError(errno.EIO, "the power went before it")  # what is never synced is never marked
    frames = frames_after(log, tail)
    ends = [log._files.active.end_offset]
    log.append(frames)
    for frame in frames:
        ends.append(ends[-1] + frame.header.stored_bytes)
    await abandon(log)
    return ends


async def test_a_clean_stop_reads_clean(tmp_path: Path) -> None:
    await write_log(tmp_path, 10)
    async with opened(tmp_path) as log:
        assert log.recovery == (True, 0, 10)
        assert log.last.position == log.durable_position == 10


async def test_durable_frames_survive_a_crash(tmp_path: Path) -> None:
    await write_log(tmp_path, 300, crash=True)
    async with opened(tmp_path) as log:
        assert (log.last.position, log.recovery.clean_stop) == (300, False)
        assert len(await all_frames(log)) == 300


async def test_a_start_reads_the_last_segment_only(tmp_path: Path) -> None:
    await write_log(tmp_path, 1000)
    async with opened(tmp_path) as log:
        assert log.recovery.frames_replayed < 100


async def test_a_tail_torn_at_any_byte_is_cut_and_the_rest_survives(tmp_path: Path) -> None:
    ends = await crashed_with_a_tail(tmp_path / "whole", 3, 3)
    path = segments_of(tmp_path / "whole")[0]
    whole = path.read_bytes()
    disk = CarelessDisk()
    for torn_at in range(ends[0], ends[-1]):
        directory = tmp_path / f"torn-{torn_at}"
        shutil.copytree(tmp_path / "whole", directory)
        zeros = bytes(len(whole) - torn_at)
        (directory / path.name).write_bytes(whole[:torn_at] + zeros)
        async with opened(directory, disk) as log:
            kept = sum(end <= torn_at for end in ends[1:])
            # A frame that ends in zeros anyway may be whole although its last bytes were cut.
            assert log.last.position in (3 + kept, 4 + kept)
            assert [frame.header.position for frame in await all_frames(log)] == list(range(1, log.last.position + 1))
        shutil.rmtree(directory)


async def test_what_is_cut_is_zeroed_and_never_comes_back(tmp_path: Path) -> None:
    ends = await crashed_with_a_tail(tmp_path, 3, 5)
    path = segments_of(tmp_path)[0]
    flip(path, ends[1] + 100)
    async with opened(tmp_path) as log:
        assert log.last.position == 4
        assert ends[-1] - ends[1] - 8 < log.recovery.torn_bytes <= ends[-1] - ends[1]  # the last may end in zeros
        assert not any(path.read_bytes()[ends[1] :])
    async with opened(tmp_path) as log:
        assert log.last.position == 4


async def test_rot_below_the_mark_stops_the_start_and_changes_nothing(tmp_path: Path) -> None:
    ends = await crashed_with_a_tail(tmp_path, 5, 2)
    path = segments_of(tmp_path)[0]
    flip(path, ends[0] - 60)
    before = path.read_bytes()
    with pytest.raises(CorruptLog, match=path.name) as rot:
        await open_at(tmp_path)
    assert FIRST_PAGE_BYTES <= int(rot.value.metadata["offset"]) < ends[0]
    assert path.read_bytes() == before


async def test_no_damaged_byte_of_a_log_is_ever_served(tmp_path: Path) -> None:
    await write_log(tmp_path / "whole", 4, size_bytes=20)
    async with opened(tmp_path / "whole") as log:
        good = [frame.raw for frame in await all_frames(log)]
    path = segments_of(tmp_path / "whole")[0]
    end = FIRST_PAGE_BYTES + sum(map(len, good))
    sectors = [each for sector in range(4) for each in range(sector * SECTOR_BYTES, sector * SECTOR_BYTES + 90)]
    disk = CarelessDisk()
    for offset in [*sectors, *range(FIRST_PAGE_BYTES, end + 8)]:
        directory = tmp_path / "damaged"
        shutil.copytree(tmp_path / "whole", directory)
        flip(directory / path.name, offset)
        with suppress(CorruptLog):
            async with opened(directory, disk) as log:
                assert [frame.raw for frame in await all_frames(log)] == good
        shutil.rmtree(directory)


async def test_rot_in_a_sealed_segment_is_found_when_it_is_read(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    flip(segments_of(tmp_path)[0], FIRST_PAGE_BYTES + 1000)
    async with opened(tmp_path) as log:
        with pytest.raises(Damaged, match="damaged at offset"):
            await all_frames(log)
        assert [damaged.first for damaged in log.damaged()] == [6]


async def test_a_bad_footer_is_built_again_from_the_frames(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    first = segments_of(tmp_path)[0]
    flip(first, first.stat().st_size - TRAILER_BYTES - 10)
    async with opened(tmp_path) as log:
        assert len(await all_frames(log)) == 300


async def test_a_missing_footer_and_trailer_are_written_again(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    first = segments_of(tmp_path)[0]
    sealed = first.read_bytes()
    flip(first, len(sealed) - 1)
    async with opened(tmp_path) as log:
        assert len(await all_frames(log)) == 300
    assert first.read_bytes() == sealed


@pytest.mark.parametrize("missing", [0, 1, -2, -1])
async def test_a_missing_segment_stops_the_start(tmp_path: Path, missing: int) -> None:
    await write_log(tmp_path, 400)
    segments_of(tmp_path)[missing].unlink()
    with pytest.raises(CorruptLog):
        await open_at(tmp_path)


async def test_segments_that_are_all_missing_stop_the_start(tmp_path: Path) -> None:
    await write_log(tmp_path, 10)
    segments_of(tmp_path)[0].unlink()
    with pytest.raises(CorruptLog):
        await open_at(tmp_path)


@pytest.mark.parametrize("which", [0, 2, -1])
@pytest.mark.parametrize("offset", [3, 30, 60])
async def test_a_bad_header_of_a_segment_is_written_anew(tmp_path: Path, which: int, offset: int) -> None:
    await write_log(tmp_path, 300)
    path = segments_of(tmp_path)[which]
    header = path.read_bytes()[:SECTOR_BYTES]
    flip(path, offset)
    async with opened(tmp_path) as log:
        assert len(await all_frames(log)) == 300
    assert path.read_bytes()[:SECTOR_BYTES] == header


async def test_a_bad_header_that_nothing_tells_stops_the_start(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    before, path = segments_of(tmp_path)[1:3]
    flip(path, 30)
    flip(before, before.stat().st_size - 1)
    path.with_suffix(".state").unlink()
    content = path.read_bytes()
    with pytest.raises(CorruptLog, match="first page"):
        await open_at(tmp_path)
    assert path.read_bytes() == content


async def test_a_segment_of_another_group_stops_the_start(tmp_path: Path) -> None:
    await write_log(tmp_path, 3)
    with pytest.raises(CorruptLog, match="group 'default', not 'other'"):
        await open_at(tmp_path, group="other")


async def test_good_frames_in_each_others_place_are_found_when_read(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    path = segments_of(tmp_path)[0]
    content = bytearray(path.read_bytes())
    size = 200  # what each of these frames takes
    first, second = (slice(FIRST_PAGE_BYTES + at * size, FIRST_PAGE_BYTES + (at + 1) * size) for at in (3, 4))
    content[first], content[second] = content[second], content[first]
    path.write_bytes(content)
    async with opened(tmp_path) as log:
        with pytest.raises(Damaged):
            await all_frames(log)
        assert [(damaged.first, damaged.last) for damaged in log.damaged()] == [(4, 5)]


async def test_nothing_is_sealed_before_the_next_segment_is_durable(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    disk.hold_syncs = asyncio.Event()
    log.append(frames_after(log, 1))
    log.append(frames_after(log, 200))
    for _ in range(5):
        await asyncio.sleep(0)
    sealed_before = any(segment.sealed for segment in log._files.segments) or log._sealer._task is not None
    disk.hold_syncs.set()
    await witness.all_durable()
    await log._sealer.drain()
    assert (sealed_before, log._files.segments[0].sealed) == (False, True)
    await log.close()


@pytest.mark.parametrize("how", ["damaged", "missing", "torn"])
async def test_a_bad_small_state_is_replayed_from_the_one_before(tmp_path: Path, how: str) -> None:
    await write_log(tmp_path, 300)
    async with opened(tmp_path) as log:
        expected = log.state.encode()
    state = files_of(tmp_path, ".state")[-1]
    if how == "missing":
        state.unlink()
    elif how == "torn":
        state.write_bytes(state.read_bytes()[:20])
    else:
        flip(state, 40)
    async with opened(tmp_path) as log:
        assert log.state.encode() == expected


@pytest.mark.parametrize("size_bytes", [0, 100, 4096])
async def test_a_durable_segment_that_is_too_short_stops_the_start(tmp_path: Path, size_bytes: int) -> None:
    await write_log(tmp_path, 300)
    path = segments_of(tmp_path)[-1]
    os.truncate(path, size_bytes)
    with pytest.raises(CorruptLog, match=path.name):
        await open_at(tmp_path)
    assert path.stat().st_size == size_bytes, "nothing was changed"


MARKS = (SECTOR_BYTES, 3 * SECTOR_BYTES)


@pytest.mark.parametrize("marks", [MARKS[:1], MARKS[1:]])
async def test_one_bad_mark_may_be_a_torn_write(tmp_path: Path, marks: tuple[int, ...]) -> None:
    await write_log(tmp_path, 10)
    await write_log(tmp_path, 10, crash=True)
    for offset in marks:
        flip(segments_of(tmp_path)[-1], offset + 20)
    async with opened(tmp_path) as log:
        assert log.last.position == 20


async def test_two_bad_marks_are_rot(tmp_path: Path) -> None:
    await write_log(tmp_path, 10)
    await write_log(tmp_path, 10, crash=True)
    path = segments_of(tmp_path)[-1]
    for offset in MARKS:
        flip(path, offset + 20)
    flip(path, FIRST_PAGE_BYTES + 200)
    content = path.read_bytes()
    with pytest.raises(CorruptLog, match="sync marks"):
        await open_at(tmp_path)
    assert path.read_bytes() == content, "nothing is cut"


@pytest.mark.parametrize("size_bytes", [0, 100, 8192])
async def test_a_roll_that_only_got_its_file_is_undone(tmp_path: Path, size_bytes: int) -> None:
    await write_log(tmp_path, 20, crash=True)
    blank = tmp_path / f"{20:020}-{21:020}.log"
    blank.write_bytes(bytes(size_bytes))
    async with opened(tmp_path) as log:
        assert log.last.position == 20
        assert not blank.exists()


@pytest.mark.parametrize("size_bytes", [SECTOR_BYTES, 3 * SECTOR_BYTES, FIRST_PAGE_BYTES - 1])
async def test_a_roll_of_which_a_part_of_the_first_page_is_there_is_undone(tmp_path: Path, size_bytes: int) -> None:
    await write_log(tmp_path, 20, crash=True)
    async with opened(tmp_path) as log:
        header = SegmentHeader("default", 20, log.last)
    begun = tmp_path / header.name.file(SEGMENT_SUFFIX)
    begun.write_bytes(pack_first_page(header, 0)[:size_bytes])
    for _ in range(2):
        await abandon(await open_at(tmp_path))
    async with opened(tmp_path) as log:
        assert log.last.position == 20
        assert not begun.exists()


class ForgetfulDisk(OsDisk):
    """A sync of ``path`` failed: its header is in the page cache, looks clean, and is not on the device."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def drop_cache(self, handle: Handle, offset: int = 0, size_bytes: int = 0) -> None:
        if self._path.exists() and os.path.samestat(os.fstat(handle), self._path.stat()):
            with self._path.open("r+b") as file:
                file.write(bytes(SECTOR_BYTES))
        super().drop_cache(handle, offset, size_bytes)


async def test_a_roll_whose_first_page_never_reached_the_device_is_undone(tmp_path: Path) -> None:
    await write_log(tmp_path, 20, crash=True)
    async with opened(tmp_path) as log:
        header = SegmentHeader("default", 20, log.last)
    begun = tmp_path / header.name.file(SEGMENT_SUFFIX)
    begun.write_bytes(pack_first_page(header, 0) + bytes(SECTOR_BYTES))
    await abandon(await open_at(tmp_path, ForgetfulDisk(begun)))
    async with opened(tmp_path) as log:
        assert log.last.position == 20
        assert not begun.exists()


async def test_files_that_were_being_made_are_removed(tmp_path: Path) -> None:
    await write_log(tmp_path, 3, crash=True)
    (tmp_path / "7.prepared").write_bytes(b"x" * 100)
    (tmp_path / "y.state.tmp").write_bytes(b"x" * 100)
    (tmp_path / f"{9:020}-{9:020}.state").write_bytes(b"x")
    async with opened(tmp_path):
        left = {path.name for path in files_of(tmp_path)}
    assert not {"7.prepared", "y.state.tmp", f"{9:020}-{9:020}.state"} & left


async def test_frames_of_an_older_tail_do_not_come_back_behind_newer_ones(tmp_path: Path) -> None:
    ends = await crashed_with_a_tail(tmp_path, 3, 5)
    path = segments_of(tmp_path)[0]
    old = path.read_bytes()[ends[1] : ends[-1]]
    flip(path, ends[0] + 3)
    async with opened(tmp_path) as log:
        log.append(frames_after(log, 1, term=2))
        await Witness(log).all_durable()
    content = bytearray(path.read_bytes())
    content[ends[1] : ends[-1]] = old  # as if the zeros behind the cut had never reached the disk
    path.write_bytes(content)
    async with opened(tmp_path) as log:
        assert log.last[:2] == (4, 2)


async def test_a_log_opens_again_and_again(tmp_path: Path) -> None:
    for round_ in range(8):
        log = await open_at(tmp_path)
        witness = Witness(log)
        assert log.last.position == 40 * round_
        log.append(frames_after(log, 40))
        await witness.all_durable()
        await (abandon(log) if round_ % 2 else log.close())
