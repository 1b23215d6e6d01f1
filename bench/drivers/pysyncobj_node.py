"""One node of PySyncObj that keeps a list of records: ``pysyncobj_node.py MODE ADDRESS PARTNERS``.

To the line "role" it answers whether it leads; other lines are appended in process: PySyncObj has no clients.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from array import array
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, replicated

from bench.drivers.python_load import say, say_measured

KEPT_RECORDS = 1_000
COMPACT_NEVER = 10**9
"""Entries. PySyncObj pickles and compresses all records in its one thread whenever 5,000 entries have come, by default:
that would be what is measured."""

MODES: dict[str, dict[str, Any]] = {
    mode: {"autoTickPeriod": 0.001, "appendEntriesPeriod": period_s, "appendEntriesUseBatch": batches}
    for mode, period_s, batches in (("at-once", 0.001, False), ("batching", 0.001, True), ("bulk", 0.05, True))
}
"""Measured one beside another: "at-once" does one call in flight four times as fast, and 256 at an eighth; with 20,000
in flight 50 ms bring a third more than 1 or 10. By default one call takes the 100 ms of the period."""


class Log(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    """The replicated list; what is old goes."""

    def __init__(self, mode: str, address: str, partners: list[str]) -> None:
        conf = SyncObjConf(
            **MODES[mode],
            commandsQueueSize=1_000_000,
            logCompactionMinEntries=COMPACT_NEVER,
            logCompactionMinTime=COMPACT_NEVER,
        )
        super().__init__(address, partners, conf)
        self._records: list[bytes] = []

    @replicated  # type: ignore[untyped-decorator]
    def add(self, record: bytes) -> int:
        """Returns the record's place."""
        if len(self._records) > KEPT_RECORDS:
            self._records.clear()
        self._records.append(record)
        return len(self._records)


class ClosedLoop:
    """Each acknowledgement begins the next append, in PySyncObj's own thread. Filling and draining take seconds."""

    def __init__(self, log: Log, inflight: int, size: int) -> None:
        self._log, self._inflight, self._record = log, inflight, os.urandom(size)

        self._latencies: array[float] = array("d")
        self._errors, self._ending, self._open, self._drained = 0, False, inflight, threading.Event()

    def fill(self) -> None:
        """Begins as many as are to be in flight."""
        for _ in range(self._inflight):
            self._begin()

    def window(self, duration_s: float) -> tuple[array[float], int, float]:
        """What is acknowledged within it: latencies, errors, and how long it was."""
        began = time.perf_counter()
        self._latencies, self._errors = array("d"), 0
        time.sleep(duration_s)
        latencies, self._latencies = self._latencies, array("d")
        return latencies, self._errors, time.perf_counter() - began

    def drain(self) -> None:
        """Begins none any more, and waits for what is in flight."""
        self._ending = True
        self._drained.wait()

    def _begin(self) -> None:
        since = time.perf_counter()

        def done(_: Any, failure: int) -> None:
            now = time.perf_counter()
            if failure:
                self._errors += 1
            else:
                self._latencies.append(now - since)
            if not self._ending:
                self._begin()
                return
            self._open -= 1
            if not self._open:
                self._drained.set()

        self._log.add(self._record, callback=done)


def main(mode: str, address: str, partners: str) -> None:
    """Until stdin ends."""
    log = Log(mode, address, partners.split(","))
    for line in sys.stdin:
        if line.strip() == "role":
            print(json.dumps({"event": "role", "leads": log._isLeader() and log.isReady()}), flush=True)
            continue
        inflight, _, size, warmup_ms, duration_ms = map(int, line.split())
        loop = ClosedLoop(log, inflight, size)
        loop.fill()
        time.sleep(warmup_ms / 1000)
        say(event="measuring")
        latencies, errors, duration_s = loop.window(duration_ms / 1000)
        say_measured(latencies, len(latencies), errors, duration_s)
        loop.drain()


main(*sys.argv[1:])
