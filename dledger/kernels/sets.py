"""The set model: the values attempted and acknowledged against those that are there in the end.

A row is an interval of values, under what is known of them:

::

    role          whose       offset                        means
    attempted     0           0                             an append of them was invoked
    failed        0           0                             … and surely did not happen
    unknown       0           0                             … and nobody knows
    acknowledged  0           0                             … and happened
    seen          0           first_value − first_index     some read found them, there
    final         a process   0                             its read at the end did
    finished      a process   0                             its read at the end was completed (start: 0 or 1, see below)

A shard must know of every read at the end, also of one that shows nothing of it. So ``finished`` stands in each shard,
and is counted in the one in which it starts at 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from dledger.kernels import runs
from dledger.kernels.history import (
    APPEND,
    FAIL,
    FINAL,
    INFO,
    LOCAL_READ,
    READ,
    Column,
    Mask,
    attempts,
    column,
    picked,
    where,
)
from dledger.kernels.kernel import Findings, added, numbers
from dledger.kernels.spans import SCHEMA, merge_spans, spans

if TYPE_CHECKING:
    from dledger.kernels.overview import Overview

ATTEMPTED, FAILED, UNKNOWN, ACKNOWLEDGED, SEEN, FINALLY, FINISHED = range(7)
COUNTS = ("attempts", "acknowledged", "failed", "unknown", "recovered", "read", "final_reads")
VIOLATIONS = ("lost", "unexpected", "vanished", "duplicated")
NUMBERS = (*COUNTS, *VIOLATIONS)


class SetCheck:
    """Lost, unexpected, vanished and duplicated values.

    * lost: acknowledged, and missing from a read at the end;
    * unexpected: read, and never attempted, or surely failed;
    * vanished: read at some time, and missing from a read at the end: it had not been committed;
    * duplicated: read at two places.
    """

    name: ClassVar[str] = "set"
    schema: ClassVar[pa.Schema] = SCHEMA

    def partial(self, batch: pa.RecordBatch, overview: Overview) -> pa.Table:
        start = column(batch, "first_value")
        end = start + column(batch, "count")
        at = start - column(batch, "first_index")
        process = column(batch, "process")
        final = where(batch, kind=FINAL)

        def rows(role: int, chosen: Mask, *, whose: Column | None = None, offset: Column | None = None) -> pa.Table:
            owner, place = (0 if each is None else each[chosen] for each in (whose, offset))
            return spans(role, start[chosen], end[chosen], whose=owner, offset=place)

        return merge_spans(
            [
                rows(ATTEMPTED, attempts(batch)),
                rows(FAILED, where(batch, kind=APPEND, outcome=FAIL)),
                rows(UNKNOWN, where(batch, kind=APPEND, outcome=INFO)),
                rows(ACKNOWLEDGED, where(batch, kind=APPEND)),
                rows(SEEN, where(batch, kind=(READ, LOCAL_READ, FINAL)), offset=at),
                rows(FINALLY, final, whose=process),
                _finished(np.unique(process[final])),
            ]
        )

    def cut(self, rows: pa.Table, overview: Overview) -> tuple[pa.Table, Column]:
        is_finished = column(rows, "role") == FINISHED
        finished, others = picked(rows, is_finished), picked(rows, ~is_finished)
        whose = column(finished, "whose")
        count = overview.values.count
        cut, shard = overview.values.cut(others)
        elsewhere = [_finished(whose, 1) for _ in range(1, count)]
        everywhere = np.repeat(np.arange(count), len(whose))
        return pa.concat_tables([cut, finished, *elsewhere]), np.append(shard, everywhere)

    def summary(self, rows: pa.Table, overview: Overview, shard: int) -> pa.Table:
        merged = merge_spans([rows])
        role, whose = column(merged, "role"), column(merged, "whose")
        start, end = column(merged, "start"), column(merged, "end")

        def of(chosen: Mask) -> runs.Intervals:
            return runs.union(start[chosen], end[chosen])

        attempted, failed, seen = of(role == ATTEMPTED), of(role == FAILED), of(role == SEEN)
        acknowledged, unknown, everything = of(role == ACKNOWLEDGED), of(role == UNKNOWN), of(role == FINALLY)
        is_seen, is_finished = role == SEEN, role == FINISHED
        finals = [of((role == FINALLY) & (whose == reader)) for reader in np.unique(whose[is_finished])]
        found = {
            "attempts": attempted.size,
            "acknowledged": acknowledged.size,
            "failed": failed.size,
            "unknown": unknown.size,
            "recovered": runs.common(unknown, everything),
            "read": everything.size,
            "final_reads": int((start[is_finished] == 0).sum()),
            "lost": sum(runs.missing(acknowledged, final) for final in finals),
            "unexpected": runs.missing(seen, attempted) + runs.common(seen, failed),
            "vanished": sum(runs.missing(seen, final) for final in finals),
            "duplicated": runs.excess(start[is_seen], end[is_seen]),
        }
        examples = {
            "lost": _first(runs.first_missing(acknowledged, final) for final in finals),
            "unexpected": runs.first_missing(seen, attempted),
            "vanished": _first(runs.first_missing(seen, final) for final in finals),
            "duplicated": runs.first_overlap(start[is_seen], end[is_seen]),
        }
        return numbers(NUMBERS, found, examples)

    def findings(self, summaries: pa.Table) -> Findings:
        sums, told = added(NUMBERS, summaries)
        return Findings({name: sums[name] for name in COUNTS}, {name: sums[name] for name in VIOLATIONS}, told)


def _finished(whose: Column, start: int = 0) -> pa.Table:
    starts = np.full(len(whose), start, dtype=np.int64)
    return spans(FINISHED, starts, np.full(len(whose), 2, dtype=np.int64), whose=whose)


def _first(values: Iterable[int | None]) -> int | None:
    return next((each for each in values if each is not None), None)
