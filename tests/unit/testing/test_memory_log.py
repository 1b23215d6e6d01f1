"""What is particular to the log in memory; that it is otherwise the one on disk, test_model.py shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import Index, Position
from dledger.testing.memory_log import MemoryLog
from tests.support.virtual_time import virtual_time
from tests.unit.log.harness import MEMBERS, Witness, frames_after


def new_log(sync_delay_ms: float = 0) -> tuple[MemoryLog, Witness]:
    log = MemoryLog("default", MEMBERS, sync_delay_ms=sync_delay_ms)
    return log, Witness(log)


async def test_frames_become_durable_in_groups() -> None:
    log, witness = new_log()
    for frame in frames_after(log, 5):
        log.append([frame])
    await witness.all_durable()
    assert witness.durable == [1, 5]


async def test_durability_takes_the_delay_it_was_given() -> None:
    log, witness = new_log(sync_delay_ms=5)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    log.append(frames_after(log, 1))
    await witness.all_durable()
    assert loop.time() - begun_s >= 0.004


async def test_a_restart_forgets_what_was_not_durable() -> None:
    log, witness = new_log()
    log.append(frames_after(log, 3))
    await witness.all_durable()
    log.append(frames_after(log, 2))
    log.reopen()
    assert (log.last.position, log.state.next_index) == (3, 3)


async def test_a_truncation_drops_completions_under_way() -> None:
    log, witness = new_log()
    log.append(frames_after(log, 5))
    await log.truncate(Position(2))
    await witness.all_durable()
    await asyncio.sleep(0)
    assert witness.durable == [2]


async def test_a_failed_sync_is_final() -> None:
    log, witness = new_log()
    log.fail_sync()
    assert (await witness.failure()).code is Code.DISK_ERROR
    with pytest.raises(DLedgerError):
        log.append(frames_after(log, 1))


async def trimmed_at(position: int, count: int = 10) -> MemoryLog:
    log = MemoryLog("default", MEMBERS, segment_frames=3)
    witness = Witness(log)
    log.append(frames_after(log, count))
    await witness.all_durable()
    await log.trim(next(each.trim for each in log.boundaries() if each.trim.point.position == position))
    return log


async def test_boundaries_lie_behind_every_so_many_frames_that_are_durable() -> None:
    log = MemoryLog("default", MEMBERS, segment_frames=3)
    witness = Witness(log)
    log.append(frames_after(log, 9))
    assert log.boundaries() == []
    await witness.all_durable()
    one = log.size_bytes // 9
    assert [(each.trim.point.position, each.trim.first_index, each.size_bytes) for each in log.boundaries()] == [
        (3, 3, 3 * one),
        (6, 6, 6 * one),
    ]


async def test_a_trimmed_log_begins_at_its_trim_point() -> None:
    log = await trimmed_at(6)
    assert (log.state.start.position, log.state.first_index, await log.point_at(Position(6))) == (6, 6, log.state.start)
    assert [frame.header.position for frame in await log.read(Position(7), 1 << 20)] == [7, 8, 9, 10]
    assert (await log.frame_of(Index(6))).header.position == 7
    assert log.cached(Position(6), 100) is None


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda log: log.read(Position(6), 100), id="read"),
        pytest.param(lambda log: log.frame_of(Index(5)), id="frame_of"),
        pytest.param(lambda log: log.point_at(Position(5)), id="point_at"),
    ],
)
async def test_what_was_trimmed_is_refused_with_the_first_index(ask: Callable[[MemoryLog], Awaitable[object]]) -> None:
    log = await trimmed_at(6)
    with pytest.raises(DLedgerError) as refused:
        await ask(log)
    assert (refused.value.code, refused.value.metadata) == (Code.INDEX_LESS_THAN_LOCAL_BEGIN, {"first_index": "6"})


async def test_a_trimmed_log_is_truncated_and_reopened_from_its_start() -> None:
    log = await trimmed_at(6)
    await log.truncate(Position(8))
    log.reopen()
    assert (log.state.start.position, log.last.position, log.state.next_index) == (6, 8, 8)


async def test_a_reset_log_equals_the_one_its_state_came_from() -> None:
    source = await trimmed_at(6)
    log, witness = new_log()
    log.append(frames_after(log, 4))
    await log.reset(await source.state_at_start())
    assert (log.state.encode(), log.durable_position, log.commit_hint) == (await source.state_at_start(), 6, 6)
    log.append(await source.read(Position(7), 1 << 20))
    await witness.all_durable()
    assert log.state.encode() == source.state.encode()


async def test_a_reset_drops_completions_under_way() -> None:
    source = await trimmed_at(6)
    log, witness = new_log()
    log.append(frames_after(log, 4))
    await log.reset(await source.state_at_start())
    await asyncio.sleep(0)
    assert witness.durable == [6]


@virtual_time
async def test_the_age_of_a_sync_is_known() -> None:
    log, witness = new_log(sync_delay_ms=5)
    log.append(frames_after(log, 1))
    await asyncio.sleep(0.002)
    assert log.sync_age_s > 0
    await witness.all_durable()
    assert log.sync_age_s == 0
