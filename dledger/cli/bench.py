"""``dledger bench``: what a cluster does per second, and how long one call takes."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.bench_kv import kv
from dledger.cli.measure import Measurement, duration_option, measure_calls, show, ticker
from dledger.cli.options import Target, client_options, option, output_option
from dledger.cli.record_limits import LARGEST_RECORD_BYTES, limits_for, with_whose_limit
from dledger.cli.runtime import run
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.memory import keep_freed_memory

if TYPE_CHECKING:
    from dledger.client import Log

Result = dict[str, Any]

MOST_CALLS = 100_000
MOST_RECORDS = 10_000_000
"""Each call is a task, each record a place in a list: far more take all memory before anything is measured."""

inflight_option = option("--inflight", env="INFLIGHT", default=256, type=click.IntRange(1, MOST_CALLS),
                         help="Calls at a time.")  # fmt: skip


@click.group()
def bench() -> None:
    """Measures a running cluster from this machine.

    \b
    dledger bench append                                 one record a call, 256 calls at a time
    dledger bench append --inflight 16 --batch 1000      a thousand records a call
    dledger bench append --inflight 1                    how long one append takes
    dledger bench kv                                     puts of the store, 64 at a time
    dledger bench kv --gets 90                           … and nine gets for each
    """


bench.add_command(kv)


@bench.command()
@inflight_option
@option("--size", env="SIZE", default=128, type=click.IntRange(0, LARGEST_RECORD_BYTES), help="Bytes a record.")
@option("--batch", env="BATCH", default=1, type=click.IntRange(1, MOST_RECORDS),
        help="Records a call; above 1 it is append_many.")  # fmt: skip
@duration_option
@output_option("table", "json")
@client_options
def append(*, target: Target, inflight: int, size: int, batch: int, duration: float, output: str) -> None:
    """Appends random records. They stay in the log."""
    keep_freed_memory()
    show(run(_append(target, inflight=inflight, size=size, batch=batch, duration_s=duration)), output)


@bench.command()
@inflight_option
@duration_option
@output_option("table", "json")
@client_options
def get(*, target: Target, inflight: int, duration: float, output: str) -> None:
    """Gets records at random indexes, linearizable."""
    show(run(_get(target, inflight=inflight, duration_s=duration)), output)


@bench.command()
@duration_option
@output_option("table", "json")
@client_options
def read(*, target: Target, duration: float, output: str) -> None:
    """Reads the log from its beginning, over and over. A call is one batch, as it was appended."""
    show(run(_read(target, duration_s=duration)), output, timed="batch")


async def _append(target: Target, *, inflight: int, size: int, batch: int, duration_s: float) -> Result:
    async with target.connect(limits=limits_for(size)) as log:
        durability = await _durability(log)
        record = os.urandom(size)
        records = [record] * batch
        first = log.enqueue_many(records)
        try:
            await first  # finds the leader, and learns whether such a batch is accepted at all
        except DLedgerError as refusal:
            raise with_whose_limit(refusal) from refusal

        def append_one() -> Awaitable[object]:
            return log.enqueue(record)

        def append_batch() -> Awaitable[object]:
            return log.enqueue_many(records)

        call = append_one if batch == 1 else append_batch
        measured = await measure_calls(call, inflight=inflight, duration_s=duration_s, label="appending")
    measured.records = len(measured.latencies_s) * batch
    measured.payload_bytes = measured.records * size
    measured.raise_if_nothing_worked()
    shape = {"inflight": inflight, "size_bytes": size, "batch": batch, "durability": durability}
    return {**measured.result(), **shape}


async def _get(target: Target, *, inflight: int, duration_s: float) -> Result:
    async with target.connect() as log:
        durability = await _durability(log)
        first, count = await _extent(log)
        chance = random.random
        payload_bytes = 0

        async def get_one() -> None:
            nonlocal payload_bytes
            entry = await log.get(first + int(chance() * count))
            payload_bytes += len(entry.value)

        measured = await measure_calls(get_one, inflight=inflight, duration_s=duration_s, label="getting")
    measured.records = len(measured.latencies_s)
    measured.payload_bytes = payload_bytes
    measured.raise_if_nothing_worked()
    shape = {"inflight": inflight, "size_bytes": _mean(payload_bytes, measured.records), "batch": 1}
    return {**measured.result(), **shape, "durability": durability}


async def _read(target: Target, *, duration_s: float) -> Result:
    measured = Measurement()
    async with target.connect() as log, asyncio.TaskGroup() as tasks:
        durability = await _durability(log)
        first, count = await _extent(log)
        ticking = tasks.create_task(ticker(measured, "reading", duration_s), name="progress")
        started = time.perf_counter()
        while time.perf_counter() < started + duration_s:
            await _read_once(log, first, first + count, started + duration_s, measured)
        measured.duration_s = time.perf_counter() - started
        ticking.cancel()
    batches = len(measured.latencies_s)
    shape = {"inflight": 1, "size_bytes": _mean(measured.payload_bytes, measured.records)}
    return {**measured.result(), **shape, "batch": _mean(measured.records, batches), "durability": durability}


async def _read_once(log: Log, start: int, end: int, until: float, measured: Measurement) -> None:
    began = time.perf_counter()
    async with aclosing(log.read_batches(start, end)) as batches:
        async for batch in batches:
            measured.records += batch.count
            measured.payload_bytes += len(batch.body) - 4 * (batch.count + 1)
            now = time.perf_counter()
            measured.latencies_s.append(now - began)
            began = now
            if now >= until:
                return


async def _extent(log: Log) -> tuple[int, int]:
    first, commit_index = await log.bounds()
    if commit_index < first:
        raise error(Code.INDEX_OUT_OF_RANGE, "the log is empty: fill it with `dledger bench append` first")
    return first, commit_index + 1 - first


async def _durability(log: Log) -> str | None:
    status = await log.status()
    leader = status.node(status.leader) if status.leader else None
    return leader.durability if leader else None


def _mean(total: int, count: int) -> int:
    return round(total / count) if count else 0
