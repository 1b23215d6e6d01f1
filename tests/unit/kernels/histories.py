"""Histories to judge, written as a reader would tell them: who appended what when, and what reads found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dledger.kernels.history import (
    APPEND,
    FAIL,
    FINAL,
    HISTORY_SCHEMA,
    INFO,
    LOCAL_READ,
    NOWHERE,
    OK,
    PROCESS_SHIFT,
    READ,
)

FINAL_READER = 1000


def value(process: int, number: int) -> int:
    """The ``number``-th value of a process."""
    return process << PROCESS_SHIFT | number


@dataclass(frozen=True)
class Row:
    """One row of a history."""

    process: int
    kind: str
    outcome: str
    invoked_ns: int
    completed_ns: int
    first_value: int = 0
    first_index: int = NOWHERE
    count: int = 1
    term: int = 1
    read_start: int = NOWHERE
    read_end: int = NOWHERE
    call: int = 0
    node: str = ""
    error: str = ""


def append(process: int, number: int, at: tuple[int, int], *, index: int = NOWHERE, count: int = 1) -> Row:
    """``count`` values from the ``number``-th on, between the times ``at``; acknowledged."""
    return Row(process, APPEND, OK, *at, value(process, number), index, count)


def unknown(process: int, number: int, at: tuple[int, int], count: int = 1) -> Row:
    return replace(append(process, number, at, count=count), outcome=INFO)


def failed(process: int, number: int, at: tuple[int, int], count: int = 1) -> Row:
    return replace(append(process, number, at, count=count), outcome=FAIL)


def reading(
    kind: str, at: tuple[int, int], values: Sequence[int], *, start: int = 0, process: int = FINAL_READER, call: int = 0
) -> list[Row]:
    """A read that found ``values`` from index ``start`` on, a row each."""
    end = start + len(values)
    found = [
        Row(process, kind, OK, *at, each, start + place, read_start=start, read_end=end, call=call)
        for place, each in enumerate(values)
    ]
    return found or [Row(process, kind, OK, *at, count=0, first_index=start, read_start=start, read_end=end, call=call)]


def final(values: Sequence[int], at: tuple[int, int] = (1000, 1001), process: int = FINAL_READER) -> list[Row]:
    return reading(FINAL, at, values, process=process)


def read(at: tuple[int, int], values: Sequence[int], call: int = 0, start: int = 0) -> list[Row]:
    return reading(READ, at, values, process=500, call=call, start=start)


def local_read(at: tuple[int, int], values: Sequence[int], call: int = 0) -> list[Row]:
    return reading(LOCAL_READ, at, values, process=600, call=call)


def batch_of(rows: Iterable[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([vars(row) for row in rows], schema=HISTORY_SCHEMA)


def batches_of(rows: Sequence[Row], size: int) -> list[pa.RecordBatch]:
    """The history cut into batches of ``size`` rows."""
    return [batch_of(rows[place : place + size]) for place in range(0, len(rows), size)]
