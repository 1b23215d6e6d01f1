"""Works through the SDK that ``dledger bench`` does not have: ``python -m bench.scenarios.client WORK ENDPOINTS …``.

Each prints one JSON object, and ends with an exception where a call failed that all depends on.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import aclosing
from itertools import accumulate
from typing import Any

import click

from dledger.cli.measure import Measurement, measure_calls
from dledger.cli.output import print_json
from dledger.cli.runtime import run
from dledger.client import connect
from dledger.common.memory import keep_freed_memory

FILL_INFLIGHT = 16
RECORDS_A_CALL = 250_000
"""The clock is looked at behind so many records: behind each it would be a part of what is measured."""


@click.group()
def client() -> None:
    keep_freed_memory()  # as README tells a program that appends in bulk


@client.command()
@click.argument("endpoints")
@click.argument("records", type=click.IntRange(1))
@click.argument("record_bytes", type=click.IntRange(0))
@click.argument("batch", type=click.IntRange(1))
def fill(*, endpoints: str, records: int, record_bytes: int, batch: int) -> None:
    """Appends so many records, in batches; tells their first index."""
    print_json(run(_fill(endpoints, records, record_bytes, batch)))


@client.command()
@click.argument("endpoints")
@click.argument("seconds", type=float)
def read(*, endpoints: str, seconds: float) -> None:
    """Reads the log record by record (``Log.read``), over and over."""
    print_json(run(_read(endpoints, seconds)))


@client.command()
@click.argument("endpoints")
@click.argument("seconds", type=float)
@click.argument("inflight", type=click.IntRange(1))
@click.argument("ranges")
@click.option("--places", type=click.IntRange(1), help="So many of them alone, the same ones in every run.")
def get(*, endpoints: str, seconds: float, inflight: int, ranges: str, places: int | None) -> None:
    """Gets at random indexes of RANGES (FIRST:END,FIRST:END…), each index as likely as any other."""
    bounds = [tuple(map(int, each.split(":"))) for each in ranges.split(",")]
    print_json(run(_get(endpoints, seconds, inflight, [range(first, end) for first, end in bounds], places)))


async def _fill(endpoints: str, records: int, record_bytes: int, batch: int) -> dict[str, Any]:
    record = os.urandom(record_bytes)
    sizes = iter([min(batch, records - at) for at in range(0, records, batch)])
    spans: list[tuple[int, int]] = []
    async with connect(endpoints) as log:

        async def append() -> None:
            for size in sizes:
                acks = await log.append_many([record] * size)
                spans.append((acks.first_index, acks.last_index))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(FILL_INFLIGHT):
                tasks.create_task(append())
    first, last = min(spans)[0], max(spans)[1]
    if last + 1 - first != records:
        raise RuntimeError(f"{records} records went to the indexes {first} to {last}: somebody else appends as well")
    return {"records": records, "first_index": first}


async def _read(endpoints: str, duration_s: float) -> dict[str, Any]:
    measured = Measurement()
    async with connect(endpoints) as log:
        first, commit_index = await log.bounds()
        start, began = first, time.perf_counter()
        while (spent := time.perf_counter() - began) < duration_s:
            end = min(start + RECORDS_A_CALL, commit_index + 1)
            size_bytes = records = 0
            async with aclosing(log.read(start, end)) as entries:
                async for entry in entries:
                    size_bytes += len(entry.value)
                    records += 1
            if records != end - start:
                raise RuntimeError(f"{records} records came of {end - start}")
            measured.payload_bytes += size_bytes
            measured.records += records
            start = end if end <= commit_index else first
    measured.duration_s = spent
    return measured.result()


async def _get(
    endpoints: str, duration_s: float, inflight: int, ranges: list[range], places: int | None
) -> dict[str, Any]:
    ends = list(accumulate(map(len, ranges)))
    numbers: Sequence[int] = range(ends[-1])
    if places is not None and places < len(numbers):
        numbers = random.Random(0).sample(numbers, places)
    payload_bytes = 0
    async with connect(endpoints) as log:

        async def get_one() -> None:
            nonlocal payload_bytes
            number = random.choice(numbers)
            which = bisect_right(ends, number)
            entry = await log.get(ranges[which][number - ends[which]])
            payload_bytes += len(entry.value)

        measured = await measure_calls(get_one, inflight=inflight, duration_s=duration_s, label="getting")
    measured.records = len(measured.latencies_s)
    measured.payload_bytes = payload_bytes
    if measured.first_failure is not None:
        raise measured.first_failure
    return measured.result()


if __name__ == "__main__":
    client()
