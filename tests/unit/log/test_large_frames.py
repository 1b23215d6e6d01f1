"""Large frames in pieces: one record costs the piece it lies in, from the moment its frame is written, for ever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.common.batch import LARGE_BODY_BYTES
from dledger.common.config import Limits
from dledger.common.types import GENESIS, Index
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle
from dledger.log.file_log import FileLog
from dledger.log.log_api import Damaged
from dledger.log.segment import writer
from dledger.log.segment.index import SparseIndex
from dledger.log.segment.large_frames import LargeFrames
from dledger.log.segment.pieces import even_record_bytes
from tests.unit.log.harness import Witness, abandon, data_frame, frames_after, open_at, opened

Result = TypeVar("Result")

SEGMENT_BYTES = 256 << 10
UNCACHED = Limits(tail_cache_bytes=1, segment_max_bytes=SEGMENT_BYTES, page_cache_bytes=0)
"""So that records come from the file."""
VALUES = [bytes([number % 251]) * (number % 90 + 1) for number in range(1_200)]


class CountingDisk(OsDisk):
    """How much was read, and of it from the device as far as the caller waited for it in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0
        self.waits = 0
        self.is_cold = False

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        self.read_bytes += size_bytes
        self.is_cold = False
        return super().pread(handle, size_bytes, offset)

    def pread_cached(self, handle: Handle, size_bytes: int, offset: int) -> bytearray | memoryview | bytes | None:
        if self.is_cold:
            self.waits += 1
            return None
        self.read_bytes += size_bytes
        return super().pread_cached(handle, size_bytes, offset)


async def fill(path: Path, frames: int = 8) -> list[bytes]:
    """A log of ``frames`` large frames with a small one behind each, in several segments, closed in order."""
    log = await open_at(path, limits=UNCACHED)
    witness = Witness(log)
    values: list[bytes] = []
    for _ in range(frames):
        log.append([data_frame(log.last, len(values), VALUES)])
        values += VALUES
        log.append(frames_after(log, 1))
        values.append(bytes([65 + len(values) % 26]) * 100)
    await witness.all_durable()
    await log.close()
    return values


def test_a_footer_keeps_large_frames_and_an_earlier_one_has_none() -> None:
    index, frame = SparseIndex(), data_frame(GENESIS, 0, VALUES)
    before = index.encode()
    index.add(frame, 4096)
    index.add(data_frame(frame.header.point, len(VALUES)), 4096 + frame.header.stored_bytes)
    loaded = SparseIndex.decode(index.encode())
    assert loaded is not None
    assert loaded.large_at(4096) == index.large_at(4096) is not None
    assert loaded.encode() == index.encode()
    earlier = SparseIndex.decode(before)
    assert earlier is not None
    assert earlier.large_at(4096) is None


def test_columns_that_do_not_fit_each_other_are_no_footer() -> None:
    large = LargeFrames()
    large.note(data_frame(GENESIS, 0, VALUES), 4096)
    stored = large.encode()
    assert LargeFrames.decode(stored) is not None
    assert [LargeFrames.decode(stored[:size]) for size in range(1, len(stored))] == [None] * (len(stored) - 1)
    assert LargeFrames.decode(stored + bytes(4)) is None


def test_small_frames_are_not_noted() -> None:
    index = SparseIndex()
    index.add(data_frame(GENESIS, 0, [bytes(LARGE_BODY_BYTES - 200)]), 4096)
    assert index.large_at(4096) is None


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 3), st.integers(0, 1 << 20))
def test_records_of_one_size_are_told_from_others(sizes: list[int], shift: int, first: int) -> None:
    values = [bytes(first), *(bytes(size << shift) for size in sizes)]
    even = {len(value) for value in values}
    assert even_record_bytes(data_frame(GENESIS, 0, values)) == (first if even == {first} else 0)


@pytest.mark.parametrize(
    "values",
    [
        [bytes(1 << 20), *[b""] * 2_047],
        [bytes(300 << 10), *[b"x"] * 8_000],
        [b"", *[bytes(100)] * 1_000],
        [b""] * 9_000,
    ],
    ids=["one of 1 MiB", "one of 300 KiB", "an empty one first", "all empty"],
)
async def test_a_batch_of_any_sizes_is_appended_and_read_back(tmp_path: Path, values: list[bytes]) -> None:
    limits = replace(UNCACHED, segment_max_bytes=4 << 20)
    log = await open_at(tmp_path, limits=limits)
    witness = Witness(log)
    log.append([data_frame(log.last, 0, values)])
    await witness.all_durable()
    await abandon(log)
    async with opened(tmp_path, limits=limits) as log:
        for index in (0, 1, len(values) - 1):
            assert (await log.frame_of(Index(index))).entry(index).value == values[index]


class TrimmingDisk(OsDisk):
    """The first segment leaves the log while a thread reads for it."""

    log: FileLog | None = None

    async def run(self, job: Callable[[], Result]) -> Result:
        result = await super().run(job)
        if self.log is not None:
            log, self.log = self.log, None
            log._files.begin_with(1)
        return result


async def test_a_segment_that_is_trimmed_while_its_index_is_loaded_keeps_neither_handle_nor_index(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)
    disk = TrimmingDisk()
    log = await open_at(tmp_path, disk, limits=UNCACHED)
    first = log._files.segments[0]
    disk.log = log
    await log.prefetch([Index(0)])
    assert first.gone
    assert (first.handle, first.index) == (None, None)
    await log.close()


async def test_every_record_of_a_log_that_was_opened_again_is_brought_by_its_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FIRST_SEGMENT_BYTES", 1 << 20)  # one segment holds all of it
    values = await fill(tmp_path)
    disk = CountingDisk()
    log = await open_at(tmp_path, disk, limits=UNCACHED)
    await log.prefetch([Index(0)])  # the footer
    of_sealed = range(0, 3 * len(VALUES), 7)
    disk.read_bytes = 0
    for index in of_sealed:
        disk.is_cold = True
        await log.prefetch([Index(index)])
        entry = log.get_cached(Index(index))
        if entry is None:  # one of the small frames between
            entry = (await log.frame_of(Index(index))).entry(index)
        assert entry.value == values[index]
    assert disk.waits >= len(of_sealed)
    assert disk.read_bytes <= len(of_sealed) * 6 * 8192
    await log.close()


async def test_records_are_brought_side_by_side(tmp_path: Path) -> None:
    values = await fill(tmp_path)
    disk = CountingDisk()
    log = await open_at(tmp_path, disk, limits=UNCACHED)
    asked = [Index(index) for index in range(0, len(values), 100)]
    disk.is_cold = True
    await log.prefetch(asked)
    found = [log.get_cached(index) or (await log.frame_of(index)).entry(index) for index in asked]
    assert [entry.value for entry in found] == [values[index] for index in asked]
    await log.close()


async def test_what_was_brought_is_looked_for_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = await fill(tmp_path)
    log = await open_at(tmp_path, limits=UNCACHED)
    monkeypatch.setattr(log._files.disk, "pread_cached", lambda *_: None)
    asked = [Index(index) for index in range(0, len(VALUES), 100)]
    assert {index: entry.value for index, entry in (await log.prefetch(asked)).items()} == {
        index: values[index] for index in asked
    }
    await log.close()


async def test_large_records_are_not_all_found_in_one_turn_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = await fill(tmp_path)
    log = await open_at(tmp_path, limits=UNCACHED)
    asked = [Index(index) for index in range(len(VALUES)) if values[index]]
    monkeypatch.setattr("dledger.log.segment.frame_reader.KEPT_BYTES", 0)
    assert len(await log.prefetch(asked)) == 1
    await log.close()


async def test_rot_in_a_piece_is_neither_served_nor_believed(tmp_path: Path) -> None:
    values = await fill(tmp_path)
    first = min(tmp_path.glob("**/*.log"))
    with first.open("r+b") as file:
        file.seek(4096 + 30_000)
        was = file.read(1)
        file.seek(4096 + 30_000)
        file.write(bytes([was[0] ^ 1]))
    log = await open_at(tmp_path, limits=UNCACHED)
    log.set_callbacks(lambda _: None, lambda _: None)
    refused = 0
    for index in range(0, len(VALUES), 5):
        await log.prefetch([Index(index)])
        entry = log.get_cached(Index(index))
        if entry is None:
            with pytest.raises(Damaged):
                await log.frame_of(Index(index))
            refused += 1
        else:
            assert entry.value == values[index]
    assert 0 < refused < len(VALUES) / 5
    await log.close()


async def test_what_is_not_in_the_log_is_not_brought(tmp_path: Path) -> None:
    values = await fill(tmp_path)
    log = await open_at(tmp_path, limits=UNCACHED)
    await log.prefetch([Index(len(values)), Index(10**9)])
    assert log.get_cached(Index(len(values))) is None
    await log.close()


async def test_whatever_part_of_a_footer_is_damaged_every_record_is_served_as_it_is(tmp_path: Path) -> None:
    values = await fill(tmp_path, frames=6)
    first = min(tmp_path.glob("**/*.log"))
    stored = first.read_bytes()
    log = await open_at(tmp_path, limits=UNCACHED)
    end_offset = log._files.segments[0].end_offset
    assert log._files.segments[0].sealed
    await log.close()
    for offset in range(end_offset, len(stored), 31):
        first.write_bytes(stored[:offset] + bytes([stored[offset] ^ 1]) + stored[offset + 1 :])
        log = await open_at(tmp_path, limits=UNCACHED)
        for index in (0, 700, len(VALUES), 2 * len(VALUES)):
            await log.prefetch([Index(index)])
            entry = log.get_cached(Index(index)) or (await log.frame_of(Index(index))).entry(index)
            assert entry.value == values[index]
        await log.close()
        first.write_bytes(stored)
