"""Counts and times the calls of a benchmark. Lean: it runs on the processors of what it measures."""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import click

from dledger.cli.options import Seconds, option
from dledger.cli.output import Progress, print_json, table
from dledger.common.errors import DLedgerError, OutcomeUnknown

PAUSE_AFTER_ERROR_S = 0.01
TICK_S = 0.2

duration_option = option("--duration", env="DURATION", default=5.0, type=Seconds(0.1), help="Seconds.")

Call = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Measurement:
    """What was done in ``duration_s``. A call's latency counts when it succeeded; ``records`` likewise."""

    records: int = 0
    payload_bytes: int = 0
    errors: int = 0
    unknown: int = 0
    duration_s: float = 0.0
    latencies_s: array[float] = field(default_factory=lambda: array("d"), repr=False)
    first_failure: DLedgerError | None = None

    def fail(self, failure: DLedgerError) -> None:
        """Counts a call that failed."""
        self.errors += 1
        self.unknown += isinstance(failure, OutcomeUnknown)
        self.first_failure = self.first_failure or failure

    def raise_if_nothing_worked(self) -> None:
        """Raises the first failure if no call succeeded."""
        if self.first_failure is not None and not self.records:
            raise self.first_failure

    def result(self) -> dict[str, Any]:
        """Rates and percentiles."""
        seconds = self.duration_s or math.inf
        ordered = sorted(self.latencies_s)
        percentiles = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
        return {
            "records_per_s": round(self.records / seconds),
            "mb_per_s": round(self.payload_bytes / 1e6 / seconds, 2),
            **{name: _percentile_ms(ordered, share) for name, share in percentiles.items()},
            "records": self.records,
            "errors": self.errors,
            "unknown": self.unknown,
            "duration_s": round(self.duration_s, 3),
        }


def _percentile_ms(ordered: list[float], share: float) -> float | None:
    """The smallest latency that ``share`` of all calls did not exceed; None without a call."""
    if not ordered:
        return None
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1000, 3)


async def measure_calls(call: Call, *, inflight: int, duration_s: float, label: str) -> Measurement:
    """Keeps ``inflight`` calls going for ``duration_s``. The caller sets records and bytes from the calls made."""
    measurement = Measurement()
    started = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(ticker(measurement, label, duration_s), name="progress")
        async with asyncio.TaskGroup() as workers:
            for number in range(inflight):
                workers.create_task(_call_until(call, started + duration_s, measurement), name=f"bench {number}")
        ticking.cancel()
    measurement.duration_s = time.perf_counter() - started
    return measurement


async def _call_until(call: Call, end: float, measurement: Measurement) -> None:
    clock, note = time.perf_counter, measurement.latencies_s.append
    now = clock()
    while now < end:
        began = now
        try:
            await call()
        except DLedgerError as failure:
            measurement.fail(failure)
            await asyncio.sleep(PAUSE_AFTER_ERROR_S)
            now = clock()
        else:
            now = clock()
            note(now - began)


async def ticker(measurement: Measurement, label: str, duration_s: float) -> None:
    """Shows progress until it is cancelled."""
    began = time.perf_counter()
    with Progress(label, duration_s) as progress:
        while True:
            spent = time.perf_counter() - began
            calls = len(measurement.latencies_s)
            progress.update(spent, f"{calls / max(spent, TICK_S):,.0f} calls/s  {measurement.errors} errors")
            await asyncio.sleep(TICK_S)


def show(result: dict[str, Any], output: str, *, timed: str = "call") -> None:
    """The result as one JSON object, or as a table for people. ``timed``: what the latencies are of."""
    if output == "json":
        print_json({**result, "latency_of": timed})
        return
    latencies = (f"p50 ms/{timed}", f"p99 ms/{timed}", f"p99.9 ms/{timed}")
    head = ("records/s", "MB/s", *latencies, "records", "errors", "unknown", "seconds")
    keys = ("records_per_s", "mb_per_s", "p50_ms", "p99_ms", "p999_ms", "records", "errors", "unknown", "duration_s")
    row = [f"{result[key]:,}" if result[key] is not None else "-" for key in keys]
    click.echo(table(head, [row]))
