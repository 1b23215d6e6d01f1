"""What the simulator knows of a disk, whatever the node says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.common.types import Position
from dledger.log.frame.frame import parse_header
from dledger.log.segment.segment import FIRST_PAGE_BYTES
from tests.simulation.truth import end_of
from tests.unit.log.harness import Witness, frames_after, open_at


@pytest.mark.parametrize("position", [1, 3])
async def test_where_a_frame_ends_is_known_though_frames_rotted_before_it(tmp_path: Path, position: int) -> None:
    log = await open_at(tmp_path)
    witness = Witness(log)
    log.append(frames_after(log, 4))
    await witness.all_durable()
    await log.close()
    (path,) = tmp_path.glob("*.log")
    whole = path.read_bytes()
    end = FIRST_PAGE_BYTES
    while (header := parse_header(whole, end)).position <= position:
        end += header.stored_bytes
    rotten_at = FIRST_PAGE_BYTES + 4
    rotten = whole[:rotten_at] + bytes(40) + whole[rotten_at + 40 :]
    assert end_of(rotten, [(rotten_at, whole[rotten_at : rotten_at + 40])], Position(position)) == end
