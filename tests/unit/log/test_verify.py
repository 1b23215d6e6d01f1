"""``dledger log verify`` and ``dledger log dump``: what they say of whole, torn, rotten and growing logs."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from dledger.common.batch import crc32c
from dledger.common.errors import ConfigError
from dledger.log.frame.frame import make_frame
from dledger.log.segment.segment import FIRST_PAGE_BYTES
from dledger.log.segment.snapshot_file import COPY_ALIGN_BYTES
from dledger.log.verify import dump, dump_records, some_of, verify
from tests.unit.log.harness import (
    Witness,
    files_of,
    frames_after,
    open_at,
    opened,
    segments_of,
    write_log,
)


async def test_a_whole_log_is_ok_and_counted(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    log = await open_at(tmp_path)
    chain = f"{log.last.chain:016x}"
    await log.close()
    assert verify(tmp_path).as_dict() == {
        "ok": True,
        "frames": 300,
        "records": 300,
        "first_index": 0,
        "last_index": 299,
        "chain": chain,
        "torn_tail_bytes": 0,
        "bad": None,
    }


async def test_a_nodes_data_directory_will_do(tmp_path: Path) -> None:
    await write_log(tmp_path / "groups" / "default", 3)
    assert verify(tmp_path).frames == 3


@pytest.mark.parametrize("directory", ["", "missing"])
def test_what_is_not_a_log_is_a_config_error(tmp_path: Path, directory: str) -> None:
    with pytest.raises(ConfigError):
        verify(tmp_path / directory)


def test_of_many_names_the_first_and_the_number_of_the_others_are_told() -> None:
    assert some_of(["a", "b"]) == "a, b"
    assert some_of([f"g{at}" for at in range(47)]) == "g0, g1, g2, g3, g4, g5, g6, g7, g8, g9 and 37 more"


async def test_several_groups_must_be_told_apart(tmp_path: Path) -> None:
    await write_log(tmp_path / "groups" / "a", 1)
    await write_log(tmp_path / "groups" / "b.17", 2)
    with pytest.raises(ConfigError, match=r"no group 'default': name one of a, b$"):
        verify(tmp_path)
    assert verify(tmp_path, "b").frames == verify(tmp_path / "groups" / "b.17").frames
    await write_log(tmp_path / "groups" / "b.18", 1)
    with pytest.raises(ConfigError, match="several groups of that name"):
        verify(tmp_path, "b")


async def test_the_log_of_a_node_is_that_of_its_group_default(tmp_path: Path) -> None:
    await write_log(tmp_path / "groups" / "default", 3)
    await write_log(tmp_path / "groups" / "meta", 1)
    assert verify(tmp_path) == verify(tmp_path / "groups" / "default")


async def test_rot_is_named_with_file_and_offset(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    path = segments_of(tmp_path)[1]
    damaged = bytearray(path.read_bytes())
    damaged[FIRST_PAGE_BYTES + 100] ^= 1
    path.write_bytes(damaged)
    report = verify(tmp_path)
    assert not report.ok
    assert report.bad is not None
    assert (report.bad.file, report.bad.offset) == (str(path), FIRST_PAGE_BYTES)


@pytest.mark.parametrize("damage", ["a byte of each copy", "gone"])
async def test_a_trimmed_log_without_the_state_it_begins_with_is_bad(tmp_path: Path, damage: str) -> None:
    await write_log(tmp_path, 300)
    async with opened(tmp_path) as log:
        await log.trim(log.boundaries()[1].trim)
    first = files_of(tmp_path, ".state")[0]
    if damage == "gone":
        first.unlink()
    else:
        stored = bytearray(first.read_bytes())
        for at in range(0, len(stored), COPY_ALIGN_BYTES):
            stored[at] ^= 1
        first.write_bytes(stored)
    bad = verify(tmp_path).bad
    assert bad is not None
    assert bad.file == str(first)


async def test_offsets_that_lie_under_a_good_checksum_are_named(tmp_path: Path) -> None:
    log = await open_at(tmp_path)
    witness = Witness(log)
    body = struct.pack("<2i", 0, 3) + b"twelve bytes"
    frame = make_frame(
        log.last, term=1, base_index=0, count=1, body=body, body_crc=crc32c(body), timestamp_ms=1, attributes=0
    )
    log.append([frame])
    await witness.all_durable()
    await log.close()
    report = verify(tmp_path)
    assert report.bad is not None
    assert report.bad.reason.startswith("the offsets do not fit")


async def test_a_durable_segment_that_is_too_short_is_named(tmp_path: Path) -> None:
    await write_log(tmp_path, 300)
    path = segments_of(tmp_path)[-1]
    os.truncate(path, 0)
    report = verify(tmp_path)
    assert report.bad is not None
    assert (report.bad.file, report.bad.reason) == (str(path), "it has 0 bytes, no first page")


async def test_a_roll_that_lost_its_size_is_no_rot(tmp_path: Path) -> None:
    await write_log(tmp_path, 20, crash=True)
    (tmp_path / f"{20:020}-{21:020}.log").touch()
    assert verify(tmp_path).ok


async def test_a_torn_tail_is_no_rot(tmp_path: Path) -> None:
    await write_log(tmp_path, 10, crash=True)
    path = segments_of(tmp_path)[-1]
    content = bytearray(path.read_bytes())
    end = len(content.rstrip(b"\0")) + 8 & ~7
    content[end : end + 100] = b"x" * 100
    path.write_bytes(content)
    report = verify(tmp_path)
    assert report.ok
    assert (report.frames, report.torn_tail_bytes) == (10, 100)


async def test_a_live_log_is_ok_and_left_alone(tmp_path: Path) -> None:
    log = await open_at(tmp_path)
    witness = Witness(log)
    log.append(frames_after(log, 100))
    await witness.all_durable()
    assert verify(tmp_path).frames == 100
    log.append(frames_after(log, 100))
    await witness.all_durable()
    assert verify(tmp_path).frames == 200
    await log.close()


async def test_dump_gives_the_records_from_an_index_on(tmp_path: Path) -> None:
    await write_log(tmp_path, 50, size_bytes=7)
    assert list(map(len, dump_records(tmp_path))) == [7] * 50
    assert list(dump_records(tmp_path, 48)) == list(dump_records(tmp_path))[48:]


async def test_dump_prints_a_line_for_each_frame_from_an_index_on(tmp_path: Path) -> None:
    await write_log(tmp_path, 50)
    lines = list(dump(tmp_path, 48))
    assert [line.split()[0] for line in lines] == ["position=49", "position=50"]
    assert "records=48 " in lines[0]
