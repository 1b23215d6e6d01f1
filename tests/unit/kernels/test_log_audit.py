"""Nodes' files compared: what is wrong with one is named to the frame, and nothing else is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from dledger.common.types import Position
from dledger.kernels import frames
from dledger.kernels.frames import BLOCK_SCHEMA, merge_blocks
from dledger.kernels.log_audit import Audit, audit_locally
from dledger.log.frame.frame import HEADER_BYTES
from dledger.log.segment.segment import FIRST_PAGE_BYTES
from tests.unit.log.harness import Witness, frames_after, open_at, segments_of

FRAMES = 400


async def write(directory: Path, count: int = FRAMES, *, size_bytes: int = 100, common: int = FRAMES) -> None:
    """A log of ``count`` committed frames of one record; behind ``common`` they are others than elsewhere."""
    log = await open_at(directory)
    witness = Witness(log)
    for number in range(count):
        log.append(frames_after(log, 1, size_bytes if number < common else size_bytes + 1))
        if number % 20 == 0:
            await witness.all_durable()
    await witness.all_durable()
    log.set_commit_hint(Position(count))
    await log.close()


@pytest.fixture
async def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three nodes with the same log, summed up by blocks of 64 positions."""
    monkeypatch.setattr(frames, "BLOCK_POSITIONS", 64)
    monkeypatch.setattr("dledger.kernels.log_audit.BLOCK_POSITIONS", 64)
    directories = [tmp_path / f"n{number}" for number in range(3)]
    await write(directories[0])
    for other in directories[1:]:
        shutil.copytree(directories[0], other)
    return directories


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def found(audit: Audit) -> tuple[int, int, int, int]:
    return audit.rot, audit.gaps, audit.diverged, audit.unreadable


def test_equal_logs_are_equal(nodes: list[Path]) -> None:
    audit = audit_locally(nodes)
    assert audit.ok
    assert (audit.nodes, audit.frames, audit.records, audit.end_index) == (3, 3 * FRAMES, 3 * FRAMES, FRAMES)
    assert audit.examples == []


async def test_a_node_that_is_behind_is_not_wrong(nodes: list[Path]) -> None:
    shutil.rmtree(nodes[1])
    await write(nodes[1], FRAMES - 77)
    assert audit_locally(nodes).ok


def test_rot_in_a_body_is_named_and_what_follows_is_still_compared(nodes: list[Path]) -> None:
    path = segments_of(nodes[1])[2]
    first = int(path.stem.split("-")[1])
    flip(path, FIRST_PAGE_BYTES + HEADER_BYTES + 50)
    audit = audit_locally(nodes)
    assert found(audit) == (1, 0, 0, 0)
    assert audit.examples[0].startswith(f"{nodes[1]}: frame {first} at offset {FIRST_PAGE_BYTES}: the body")


def test_behind_a_header_that_cannot_be_read_the_frames_of_that_file_are_missing(nodes: list[Path]) -> None:
    path, following = segments_of(nodes[2])[1:3]
    first, end = (int(each.stem.split("-")[1]) for each in (path, following))
    flip(path, FIRST_PAGE_BYTES + 20)
    assert found(audit_locally(nodes)) == (1, end - first - 1, 0, 0)


async def test_a_log_that_differs_is_named_with_its_first_frame_that_does(nodes: list[Path]) -> None:
    shutil.rmtree(nodes[2])
    await write(nodes[2], common=201)
    audit = audit_locally(nodes)
    assert found(audit) == (0, 0, 1, 0)
    assert audit.examples == [f"{nodes[2]}: differs from the others from frame 202 on"]


def test_a_missing_file_makes_a_node_unreadable(nodes: list[Path]) -> None:
    segments_of(nodes[0])[1].unlink()
    audit = audit_locally(nodes)
    assert found(audit) == (0, 0, 0, 1)
    assert "missing" in audit.examples[0]


def test_sums_do_not_depend_on_how_frames_were_cut() -> None:
    rows = [{"node": 0, "block": at % 3, "frames": 1, "bad": 0, "records": at, "first_position": at,
             "last_position": at, "hash": (1 << 63) + at} for at in range(1, 40)]  # fmt: skip
    whole = pa.Table.from_pylist(rows, BLOCK_SCHEMA)
    merged = merge_blocks([whole])
    halves = [merge_blocks([whole.slice(0, 17)]), merge_blocks([whole.slice(17)])]
    assert merge_blocks(reversed(halves)) == merged
    assert sum(merged.column("frames").to_pylist()) == 39
