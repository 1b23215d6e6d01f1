"""Automatic compaction keeps the history for as long as it says, and forgets what is older."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from dledger.server.meta.compactor import Compactor
from tests.support.virtual_time import virtual_time
from tests.unit.server.meta.leading import Leading, LeadingReplica

HISTORY_S = 600.0


def compacting(leading: Leading) -> tuple[Compactor, list[asyncio.Task[None]]]:
    compactor = Compactor(cast("Any", leading), lambda: cast("Any", LeadingReplica(leading)), HISTORY_S)
    works = (compactor.run(), compactor.run_cleaning())
    return compactor, [asyncio.ensure_future(work) for work in works]


async def put_every(leading: Leading, pause_s: float, times: int) -> None:
    for number in range(times):
        leading.put(b"%d" % (number % 3))
        await asyncio.sleep(pause_s)


@virtual_time
async def test_what_is_older_than_the_history_goes_and_nothing_younger() -> None:
    leading = Leading()
    _, tasks = compacting(leading)
    await put_every(leading, 10, 200)
    pairs = leading.store.pairs
    kept_s = (pairs.revision - pairs.compact_revision) * 10
    assert HISTORY_S <= kept_s <= HISTORY_S * 1.2
    for task in tasks:
        task.cancel()


@virtual_time
async def test_a_new_leader_keeps_the_history_of_the_one_before() -> None:
    leading = Leading()
    _, tasks = compacting(leading)
    await put_every(leading, 10, 55)
    leading.term = 2
    await put_every(leading, 10, 55)
    assert leading.store.pairs.compact_revision <= 0
    for task in tasks:
        task.cancel()


@virtual_time
async def test_a_node_that_does_not_lead_compacts_nothing() -> None:
    leading = Leading()
    leading.leads = False
    _, tasks = compacting(leading)
    await put_every(leading, 10, 200)
    assert not leading.submitted
    for task in tasks:
        task.cancel()


@virtual_time
async def test_memory_is_freed_once_something_was_compacted() -> None:
    leading = Leading()
    compactor, tasks = compacting(leading)
    for _ in range(5_000):
        leading.put(b"same")
    before_bytes = leading.store.pairs.size_bytes
    leading.store.pairs.compact(leading.store.pairs.revision)
    compactor.on_applied()
    await asyncio.sleep(60)
    assert leading.store.pairs.size_bytes < before_bytes / 100
    for task in tasks:
        task.cancel()
