"""What a log takes of a disk: little while nobody writes to it, large segments soon once somebody does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dledger.common.config import Limits
from dledger.disk.reserve import RESERVE_BYTES, RESERVE_NAME, Reserve
from dledger.log.frame.control import no_op_body
from dledger.log.frame.frame import ControlKind
from tests.unit.disk.test_reserve import SmallDisk
from tests.unit.log.harness import (
    MEMBERS,
    CarelessDisk,
    Witness,
    control_frame,
    files_of,
    frames_after,
    open_at,
    opened,
    prove_room,
)

KIB = 1 << 10
IDLE_BYTES = 300 * KIB


def allocated_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*"))


async def test_a_log_that_only_gets_a_no_op_a_start_takes_little(tmp_path: Path) -> None:
    for _ in range(3):
        async with opened(tmp_path, CarelessDisk(), Limits()) as log:
            log.append([control_frame(log.last, 0, ControlKind.NO_OP, no_op_body("c", MEMBERS))])
            await asyncio.sleep(0.2)
            assert log._preparer._task is None
            assert log.size_bytes == 64 * KIB
            assert allocated_bytes(tmp_path) < IDLE_BYTES


async def test_a_log_with_a_large_segment_prepares_none_before_it_is_written_to(tmp_path: Path) -> None:
    async with opened(tmp_path, CarelessDisk(), Limits()) as log:
        for _ in range(20):
            log.append(frames_after(log, 1, size_bytes=100_000))
        assert log._files.active.size_bytes >= 1 << 20
    async with opened(tmp_path, CarelessDisk(), Limits()) as log:
        log.append(frames_after(log, 1))
        assert log._preparer._task is None
        log.append(frames_after(log, 1, size_bytes=16 * KIB))
        assert log._preparer._task is not None


async def test_segments_grow_to_the_largest_within_a_few_rolls(tmp_path: Path) -> None:
    disk = CarelessDisk()
    async with opened(tmp_path, disk, Limits(segment_max_bytes=8 << 20)) as log:
        log._writer.prepare_next = lambda: None  # type: ignore[method-assign]  # one that is late may be a small one
        for _ in range(400):
            log.append(frames_after(log, 1, size_bytes=60_000))
        sizes = [segment.size_bytes // KIB for segment in log._files.segments]
        assert sizes[-1] == 8192
        await log._sealer.drain()
    kib = [path.stat().st_size // KIB + 1 for path in files_of(tmp_path, ".log")]
    assert len(kib) <= 8, f"64, 256 KiB, 1, 2, 4, 8 MiB and what is left: {kib}"


async def test_a_log_in_bulk_has_large_segments_soon_though_they_are_prepared(tmp_path: Path) -> None:
    async with opened(tmp_path, CarelessDisk(), Limits()) as log:
        for _ in range(100):
            log.append(frames_after(log, 1, size_bytes=1 << 20))
            await asyncio.sleep(0)
        assert log._files.active.size_bytes >= 16 << 20
        assert len(log._files.segments) <= 12


async def test_two_logs_share_one_reserve(tmp_path: Path) -> None:
    disk = SmallDisk()
    limits, reserve = Limits(segment_max_frames=10), Reserve(disk, tmp_path)
    logs = [await open_at(tmp_path / name, disk, limits, group=name, reserve=reserve) for name in "ab"]
    witnesses = [Witness(log) for log in logs]
    assert all(await asyncio.gather(*(prove_room(log) for log in logs)))
    reserves = [path for path in tmp_path.rglob("*") if path.name.startswith(RESERVE_NAME)]
    assert reserves == [tmp_path / RESERVE_NAME]
    assert reserves[0].stat().st_size == RESERVE_BYTES
    for log, witness in zip(logs, witnesses, strict=True):
        log.append(frames_after(log, 10))
        await witness.all_durable()
        await log._preparer.close()
    disk.room_bytes = 0
    for log, witness in zip(logs, witnesses, strict=True):  # the second finds the room that the first one freed
        log.append(
            [control_frame(log.last, log.state.next_index, ControlKind.NO_OP, no_op_body("c", MEMBERS))],
        )
        await witness.all_durable()
    assert not reserves[0].exists()
    for log in logs:
        await log.close()
