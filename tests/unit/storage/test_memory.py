"""What is particular to the log in memory; that it is otherwise the one on disk, test_model.py shows."""

from __future__ import annotations

import asyncio

import pytest

from dledger.errors import Code, DLedgerError
from dledger.storage.memory import MemoryLog
from dledger.types import Position
from tests.unit.storage.harness import MEMBERS, Witness, frames_after


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
