"""The closed loop of the load generators that are written in Python; bench/driver.py says how they are spoken to."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from collections.abc import Awaitable, Callable

Call = Callable[[], Awaitable[object]]
CallOf = Callable[[int, int], Call]
"""From (batch, size in bytes) to one call."""


async def serve_stdin(call_of: CallOf) -> None:
    """Does what each line asks, until stdin ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        inflight, batch, size, warmup_ms, duration_ms = map(int, line.split())
        call = call_of(batch, size)
        if warmup_ms:
            await _keep_going(call, inflight, warmup_ms / 1000)
        say(event="measuring")
        latencies, errors, duration_s = await _keep_going(call, inflight, duration_ms / 1000)
        say_measured(latencies, len(latencies) * batch, errors, duration_s)


async def _keep_going(call: Call, inflight: int, duration_s: float) -> tuple[array[float], int, float]:
    latencies: array[float] = array("d")
    errors = 0
    began = time.perf_counter()
    end = began + duration_s

    async def worker() -> None:
        nonlocal errors
        clock, note = time.perf_counter, latencies.append
        now = clock()
        while now < end:
            since = now
            try:
                await call()
            except Exception as failure:  # noqa: BLE001  # every kind counts as one call that failed, and is told
                errors += 1
                print(repr(failure), file=sys.stderr)
                now = clock()
            else:
                now = clock()
                note(now - since)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(inflight):
            tasks.create_task(worker())
    return latencies, errors, time.perf_counter() - began


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def say_measured(latencies_s: array[float], records: int, errors: int, duration_s: float) -> None:
    """The second event."""
    ordered = sorted(latencies_s) or [0.0]
    p50, p99 = (round(ordered[int(share * (len(ordered) - 1))] * 1000, 4) for share in (0.5, 0.99))
    say(event="measured", records=records, errors=errors, duration_s=duration_s, p50_ms=p50, p99_ms=p99)
