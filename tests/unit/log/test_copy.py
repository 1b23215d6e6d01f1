"""A copy of one node's files: what is committed is read from them, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.common.errors import Code, CorruptLog, DLedgerError, OutOfRange
from dledger.common.types import Position
from dledger.log.copy import LogCopy
from dledger.log.segment.segment import FIRST_PAGE_BYTES
from tests.unit.log.harness import Witness, frames_after, open_at, segments_of


async def committed_log(directory: Path, count: int = 300, *, committed: int = 300) -> None:
    """A log of one record a frame, of which the files know the first ``committed`` to be committed."""
    log = await open_at(directory)
    witness = Witness(log)
    for _ in range(count // 10):
        log.append(frames_after(log, 10))
        await witness.all_durable()
    log.set_commit_hint(Position(committed))
    await log.close()


def indexes(copy: LogCopy, start: int, end: int) -> list[int]:
    return [frame.header.base_index for frame in copy.read(start, end)]


async def test_committed_records_are_read_in_order(tmp_path: Path) -> None:
    await committed_log(tmp_path)
    copy = LogCopy(tmp_path)
    assert (copy.first_index, copy.end_index) == (0, 300)
    assert indexes(copy, 0, 300) == list(range(300))
    assert indexes(copy, 117, 121) == [117, 118, 119, 120]


async def test_what_is_not_known_to_be_committed_is_not_read(tmp_path: Path) -> None:
    await committed_log(tmp_path, committed=251)
    copy = LogCopy(tmp_path)
    assert copy.end_index == 251
    with pytest.raises(OutOfRange) as beyond:
        indexes(copy, 0, 252)
    assert beyond.value.code is Code.INDEX_OUT_OF_RANGE


async def test_spans_cover_what_is_committed(tmp_path: Path) -> None:
    await committed_log(tmp_path, committed=251)
    spans = LogCopy(tmp_path).spans()
    assert len(spans) > 1
    assert [span.base_index for span in spans] == [0, *(span.end_index for span in spans[:-1])]
    assert spans[-1].end_index == 251


async def test_rot_is_named_with_file_and_offset_and_the_frames_before_are_read(tmp_path: Path) -> None:
    await committed_log(tmp_path)
    path = segments_of(tmp_path)[1]
    first = int(path.stem.split("-")[0])
    damaged = bytearray(path.read_bytes())
    damaged[FIRST_PAGE_BYTES + 100] ^= 1
    path.write_bytes(damaged)
    copy = LogCopy(tmp_path)
    assert indexes(copy, 0, first) == list(range(first))
    with pytest.raises(CorruptLog) as rot:
        indexes(copy, 0, 300)
    assert (rot.value.metadata["file"], rot.value.metadata["offset"]) == (str(path), str(FIRST_PAGE_BYTES))


async def test_a_directory_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(DLedgerError, match="holds no log"):
        LogCopy(tmp_path)
