"""The processes of a run: each does one thing after another until the run ends, and records every one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import numpy as np

from dledger.client import Batch, Log
from dledger.common.errors import DLedgerError, OutOfRange
from dledger.common.types import Consistency
from dledger.kernels.history import LOCAL_READ, PROCESS_SHIFT, READ
from jepsen.clients import Client
from jepsen.recorder import ReadRows, Recorder
from jepsen.records import records_of, runs_in, value_in, values_in
from jepsen.verdicts import Acknowledged

SINGLE_RECORD_AT = 8
"""Where the record of a batch of one begins: behind its two offsets."""
PAUSE_S = 0.1
"""Between two reads of one reader, and after one that was refused."""
GETTER_PAUSE_S = (0.0, 2.0)
"""Long, so that some are asked of a leader that was deposed meanwhile, by a client that has not heard of it."""
BACKLOG_RECORDS = 20_000
"""How far back a reader looks again at most."""


class Appender:
    """Appends ``batch`` distinct values at a time, ``rate_per_s`` times a second or as fast as they are answered."""

    def __init__(
        self, process: int, client: Client, recorder: Recorder, *, batch: int, record_bytes: int, rate_per_s: float
    ) -> None:
        self._process = process
        self._client = client
        self._recorder = recorder
        self._batch = batch
        self._record_bytes = record_bytes
        self._interval_s = 1 / rate_per_s if rate_per_s else 0.0

    async def run(self, ended: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        process, recorder, batch = self._process, self._recorder, self._batch
        next_at = loop.time() + self._interval_s * random.random()
        call = 0
        while not ended.is_set():
            if self._interval_s:
                await asyncio.sleep(next_at - loop.time())
                next_at = max(next_at + self._interval_s, loop.time() - 1)
            value = process << PROCESS_SHIFT | call * batch
            records = records_of(value, batch, self._record_bytes)
            append = recorder.invoke(process, call, value, batch)
            outcome = await self._client.append(records)
            recorder.complete(append, outcome)
            call += 1
            if not isinstance(outcome, Acknowledged):
                await asyncio.sleep(0)  # what is refused without a wait must not keep everybody else from running


class Reader:
    """Reads from a place at most ``BACKLOG_RECORDS`` behind what it has seen to the end, again and again.

    ``node``: that node's committed prefix; else linearizable.
    """

    def __init__(self, process: int, log: Log, recorder: Recorder, record_bytes: int, node: str = "") -> None:
        self._process = process
        self._log = log
        self._recorder = recorder
        self._size = record_bytes
        self._node = node
        self._seen = 0
        self._calls = 0

    async def run(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            start = max(0, self._seen - random.randrange(BACKLOG_RECORDS)) if random.random() < 0.5 else self._seen
            await self._read(start)
            await asyncio.sleep(PAUSE_S)

    async def _read(self, start: int) -> None:
        self._calls += 1
        consistency, kind = (Consistency.COMMITTED, LOCAL_READ) if self._node else (Consistency.LINEARIZABLE, READ)
        rows = self._rows(kind, start)
        try:
            await fill(
                rows, self._log.read_batches(start, consistency=consistency, node=self._node or None), self._size
            )
        except DLedgerError as refusal:
            if rows:
                self._recorder.found(rows.broken_off())
            elif isinstance(refusal, OutOfRange):
                self._seen = 0  # a node's own prefix may be shorter; a check holds a leader's against what was known
                if not self._node:
                    self._recorder.found(rows.that_end_at(int(refusal.metadata["commit_index"]) + 1))
        else:
            self._recorder.found(rows)
            self._seen = rows.end

    def _rows(self, kind: str, start: int) -> ReadRows:
        return ReadRows(
            self._process, self._calls, kind, node=self._node, start=start, invoked_ns=self._recorder.now_ns()
        )


class Getter:
    """Gets single records: the newest that any client knows of, which must be there, or an older one."""

    def __init__(self, process: int, log: Log, recorder: Recorder, record_bytes: int) -> None:
        self._process = process
        self._log = log
        self._recorder = recorder
        self._size = record_bytes

    async def run(self, ended: asyncio.Event) -> None:
        calls = 0
        while not ended.is_set():
            await asyncio.sleep(random.uniform(*GETTER_PAUSE_S))
            newest = self._recorder.highest_index
            if newest < 0:
                continue
            calls += 1
            index = newest if random.random() < 0.5 else random.randrange(newest + 1)
            invoked_ns = self._recorder.now_ns()
            try:
                entry = await self._log.get(index)
            except OutOfRange:
                # It says that the log ends there: a check holds that against what was acknowledged.
                self._recorder.found(ReadRows(self._process, calls, READ, start=index, invoked_ns=invoked_ns))
            except DLedgerError:
                continue  # nothing was shown
            else:
                rows = ReadRows(self._process, calls, LOCAL_READ, start=index, invoked_ns=invoked_ns)
                values = np.array([value_in(entry.value, self._size)], dtype=np.int64)
                rows.add(index, entry.term, values, *runs_in(values))
                self._recorder.found(rows)


async def fill(rows: ReadRows, batches: AsyncIterator[Batch], record_bytes: int) -> None:
    """Adds all that is read. Raises what the read raises."""
    async for batch in batches:
        if batch.count == 1:
            rows.add_one(batch.base_index, batch.term, value_in(batch.body[SINGLE_RECORD_AT:], record_bytes))
            continue
        values = values_in(batch.body, batch.count, record_bytes)
        rows.add(batch.base_index, batch.term, values, *runs_in(values))
