"""Writes the history while it happens: a line for each event of an append, columns for what reads found.

::

    appends.jsonl   {"type":"invoke","process":3,"call":17,"ns":120,"value":3298534883336,"count":2}
                    {"type":"ok","process":3,"call":17,"ns":190,"invoked":120,"value":…,"count":2,"index":41,"term":2}
                    {"type":"info","process":3,"call":18,"ns":5200,"invoked":200,"value":…,"count":2,"error":"TIMEOUT"}
    reads.arrow     rows of HISTORY_SCHEMA, as an Arrow stream

An append that was invoked and has no other line is of unknown outcome: the harness itself was killed meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, assert_never

import numpy as np
import pyarrow as pa

from dledger.kernels.history import HISTORY_SCHEMA, LOCAL_READ, NOWHERE, OK, Column
from jepsen.verdicts import Acknowledged, Failed, Outcome, Unknown

FLUSH_LINES = 2_000


class Invocation(NamedTuple):
    """An append under way."""

    process: int
    call: int
    count: int  # type: ignore[assignment]  # a field, not tuple.count
    invoked_ns: int
    what: str


class Recorder:
    """Of one run. Times are in ns since ``begin``."""

    def __init__(self, run_dir: Path) -> None:
        self._appends = (run_dir / "appends.jsonl").open("w", encoding="ascii")
        self._reads = pa.OSFile(str(run_dir / "reads.arrow"), "wb")
        self._stream = pa.ipc.new_stream(self._reads, HISTORY_SCHEMA)
        self._lines: list[str] = []
        self._began_ns = time.monotonic_ns()
        self.acknowledged = 0
        self.unknown = 0
        self.failed = 0
        """Records, so far."""
        self.highest_index = NOWHERE
        """Acknowledged so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.flush()
        self._appends.close()
        self._stream.close()
        self._reads.close()

    def begin(self) -> None:
        """The load begins: time is 0."""
        self._began_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._began_ns

    def invoke(self, process: int, call: int, value: int, count: int) -> Invocation:
        """Before the append is sent."""
        now_ns = self.now_ns()
        what = f'"value":{value},"count":{count}'
        self._write(f'{{"type":"invoke","process":{process},"call":{call},"ns":{now_ns},{what}}}\n')
        return Invocation(process, call, count, now_ns, what)

    def complete(self, append: Invocation, outcome: Outcome) -> None:
        """After its outcome was told."""
        count = append.count
        match outcome:
            case Acknowledged(index, term):
                self.acknowledged += count
                self.highest_index = max(self.highest_index, index + count - 1)
                kind, rest = "ok", f'"index":{index},"term":{term}'
            case Failed(why):
                self.failed += count
                kind, rest = "fail", f'"error":"{why.name}"'
            case Unknown(why):
                self.unknown += count
                kind, rest = "info", f'"error":"{why}"'
            case _:
                assert_never(outcome)
        self._write(
            f'{{"type":"{kind}","process":{append.process},"call":{append.call},"ns":{self.now_ns()},'
            f'"invoked":{append.invoked_ns},{append.what},{rest}}}\n'
        )

    def found(self, read: ReadRows) -> None:
        """What a read showed, once it has ended."""
        self._stream.write_batch(read.batch(self.now_ns()))

    def _write(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) >= FLUSH_LINES:
            self.flush()

    def flush(self) -> None:
        """Hands the lines to the system; called ten times a second too."""
        self._appends.write("".join(self._lines))
        self._appends.flush()
        self._lines.clear()


class ReadRows:
    """Gathers one read's runs."""

    def __init__(self, process: int, call: int, kind: str, *, node: str = "", start: int, invoked_ns: int) -> None:
        self._process, self._call, self._kind, self._node = process, call, kind, node
        self._start, self._invoked_ns = start, invoked_ns
        self._firsts: list[Column] = []
        self._indexes: list[Column] = []
        self._counts: list[Column] = []
        self._terms: list[Column] = []
        self._singles: list[tuple[int, int, int]] = []
        self.end = start
        """Behind the last index shown."""

    def add(self, base_index: int, term: int, values: Column, begins: Column, counts: Column) -> None:
        """A batch, in the runs of its values."""
        self._close_singles()
        self._firsts.append(values[begins])
        self._indexes.append(base_index + begins)
        self._counts.append(counts)
        self._terms.append(np.full(len(begins), term, dtype=np.int64))
        self.end = base_index + len(values)

    def add_one(self, index: int, term: int, value: int) -> None:
        """A batch of one: many of them are the longest reads, so they wait in lists."""
        self._singles.append((value, index, term))
        self.end = index + 1

    def _close_singles(self) -> None:
        if not self._singles:
            return
        values, indexes, terms = np.array(self._singles, dtype=np.int64).T
        self._singles.clear()
        self._firsts.append(values)
        self._indexes.append(indexes)
        self._counts.append(np.ones(len(values), dtype=np.int64))
        self._terms.append(terms)

    def __bool__(self) -> bool:
        """Whether it showed anything."""
        return bool(self._firsts or self._singles)

    def broken_off(self) -> Self:
        """What it showed until it failed: that was told, and that there is no more was not."""
        self._kind = LOCAL_READ
        return self

    def that_end_at(self, end: int) -> Self:
        """Instead of records, the word that the log ends there, before where the read was to begin."""
        self._start = self.end = end
        return self

    def batch(self, completed_ns: int) -> pa.RecordBatch:
        """The rows; one that shows nothing, when nothing was found."""
        self._close_singles()
        if not self._firsts:
            nothing = np.zeros(1, dtype=np.int64)
            self._firsts, self._indexes, self._counts = [nothing], [nothing + self._start], [nothing]
            self._terms = [nothing]
        first_value = np.concatenate(self._firsts)
        rows = len(first_value)
        columns = {
            "process": self._process,
            "call": self._call,
            "kind": self._kind,
            "outcome": OK,
            "invoked_ns": self._invoked_ns,
            "completed_ns": completed_ns,
            "first_value": first_value,
            "first_index": np.concatenate(self._indexes),
            "count": np.concatenate(self._counts),
            "term": np.concatenate(self._terms),
            "read_start": self._start,
            "read_end": self.end if self.end >= 0 else NOWHERE,
            "node": self._node,
            "error": "",
        }
        arrays = [_array(columns[field.name], field.type, rows) for field in HISTORY_SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=HISTORY_SCHEMA)


def _array(values: object, kind: pa.DataType, rows: int) -> pa.Array:
    if isinstance(values, np.ndarray):
        return pa.array(values, kind)
    return pa.repeat(pa.scalar(values, kind), rows)
