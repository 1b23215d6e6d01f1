"""Records without the rest of their frames: each piece is checked, and whatever is not as it was is read anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dledger.common.config import Limits
from dledger.common.types import GENESIS, Entry, Index, Position
from dledger.log.file_log import FileLog
from dledger.log.log_api import Damaged
from dledger.log.segment import writer
from dledger.log.segment.checked_blocks import CheckedBlocks
from dledger.log.segment.segment import Segment, SegmentName
from tests.unit.log.harness import Witness, data_frame, frames_after, open_at

UNCACHED = Limits(tail_cache_bytes=1)
"""So that records come from the file."""
RECORDS = [bytes([65 + number % 26]) * (number % 97) for number in range(3_000)]
"""In one frame of about 150 KB: empty ones, and some that lie across two pieces."""


@asynccontextmanager
async def opened(path: Path, limits: Limits = UNCACHED) -> AsyncIterator[FileLog]:
    log = await open_at(path, limits=limits)
    witness = Witness(log)
    yield log
    await witness.all_durable()
    await log.close()


async def fill(log: FileLog) -> list[bytes]:
    """One large frame, 300 small ones, and what keeps the last of both apart from the log's end."""
    log.append([data_frame(log.last, 0, RECORDS)])
    log.append(frames := frames_after(log, 300))
    log.append(frames_after(log, 200))
    return RECORDS + [frame.entry(frame.header.base_index).value for frame in frames]


async def test_whatever_block_was_read_once_is_at_hand(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        values = await fill(log)
        assert log.get_cached(Index(3_000)) is None
        for index, value in enumerate(values):
            entry = log.get_cached(Index(index))
            if entry is None:
                entry = (await log.frame_of(Index(index))).entry(index)
            again = log.get_cached(Index(index))
            assert entry == again
            assert entry.value == value


EVEN = [number.to_bytes(50, "big") for number in range(3_000)]
NEARLY_EVEN = [*EVEN[:2_000], EVEN[2_000][:30], EVEN[2_001] + bytes(20), *EVEN[2_002:]]


@pytest.mark.parametrize(
    ("values", "pieces"),
    [
        pytest.param(RECORDS, 4, id="of any size"),
        pytest.param(EVEN, 2, id="of one size"),
        pytest.param(NEARLY_EVEN, 4, id="of one size but for two"),
    ],
)
async def test_a_block_is_read_once_for_all_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[bytes], pieces: int
) -> None:
    async with opened(tmp_path) as log:
        log.append([data_frame(log.last, 0, values)])
        log.append(frames_after(log, 300))
        await log.frame_of(Index(7))
        read_bytes = 0
        disk = log._files.disk
        pread = disk.pread_cached

        def counted(handle: int, size_bytes: int, offset: int) -> object:
            nonlocal read_bytes
            read_bytes += size_bytes
            return pread(handle, size_bytes, offset)  # type: ignore[arg-type]

        monkeypatch.setattr(disk, "pread_cached", counted)
        asked = range(3_000)
        found = [log.get_cached(Index(index)) for index in asked]
        assert found == [Entry(index, 1, 1000, values[index]) for index in asked]
        assert read_bytes <= len(asked) * pieces * 4096


@pytest.mark.parametrize(
    ("offset", "lost"),
    [
        pytest.param(4096 + 50, range(0), id="header, which no record needs"),
        pytest.param(4096 + 88 + 4 * 1_500, range(3_000), id="offsets"),
        pytest.param(4096 + 60_000, range(3_000), id="values"),
        pytest.param(4096 + 156_500, range(3_003, 3_004), id="a small frame"),
    ],
)
async def test_rot_under_what_was_checked_is_found_and_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, lost: range
) -> None:
    monkeypatch.setattr(writer, "FIRST_SEGMENT_BYTES", 1 << 20)  # one segment holds all of it
    async with opened(tmp_path) as log:
        values = await fill(log)
        for index in range(3_300):
            await log.frame_of(Index(index))
        (path,) = tmp_path.glob("**/*.log")
        flip(path, offset)
        for index in range(3_300):
            entry = log.get_cached(Index(index))
            if entry is None and index in lost:
                with pytest.raises(Damaged):
                    await log.frame_of(Index(index))
            else:
                entry = entry or (await log.frame_of(Index(index))).entry(index)
                assert entry.value == values[index]
        assert bool(log.damaged()) == bool(lost)


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        was = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([was ^ 0x10]))


async def test_what_was_cut_off_is_forgotten(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.append(frames_after(log, 300, term=1))
        assert (await log.frame_of(Index(5))).header.term == 1
        assert log.get_cached(Index(5)) is not None
        await log.truncate(Position(3))
        assert log.get_cached(Index(5)) is None
        log.append(frames_after(log, 300, term=2))
        assert (await log.frame_of(Index(5))).header.term == 2
        entry = log.get_cached(Index(5))
        assert entry is not None
        assert entry.term == 2


async def test_what_is_not_in_the_log_is_not_at_hand(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.append(frames_after(log, 3))
        assert [log.get_cached(Index(index)) is not None for index in (-1, 2, 3)] == [False, True, False]


def test_the_oldest_blocks_make_room() -> None:
    blocks = CheckedBlocks(max_bytes=2_000)
    segment = Segment(SegmentName(1, 0), "", GENESIS, 1 << 20)
    frame = data_frame(GENESIS, 0, [b"value"])
    stored = frame.raw

    def read(size_bytes: int, offset: int) -> bytes:
        return stored[offset % 1_000 : offset % 1_000 + size_bytes]

    frame.buffers = (stored,)
    for number in range(100):
        blocks.note(segment, 1_000 * number, [frame])
    known = [number for number in range(100) if blocks.entry(segment, 1_000 * number, 0, read) is not None]
    assert known == list(range(known[0], 100))
    assert 1 <= len(known) <= 5
