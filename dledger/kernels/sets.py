"""The set model: what was attempted and acknowledged against what is there in the end.

The partial holds intervals of values, each under what is known of them:

::

    role          whose       offset                        means
    attempted     0           0                             an append of them was invoked
    failed        0           0                             … and surely did not happen
    unknown       0           0                             … and nobody knows
    acknowledged  0           0                             … and happened
    seen          0           first_value − first_index     some read found them, there
    final         a process   first_value − first_index     its read at the end did
    finished      a process   0                             its read at the end was completed
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dledger.kernels import runs
from dledger.kernels.history import (
    APPEND,
    FAIL,
    FINAL,
    INFO,
    LOCAL_READ,
    OK,
    PROCESS_SHIFT,
    READ,
    Mask,
    column,
    where,
)
from dledger.kernels.kernel import Findings
from dledger.kernels.spans import SCHEMA, merge_spans, spans

ATTEMPTED, FAILED, UNKNOWN, ACKNOWLEDGED, SEEN, FINALLY, FINISHED = range(7)


class SetKernel:
    """Lost, unexpected, vanished and duplicated values.

    * lost: acknowledged, and missing from a read at the end;
    * unexpected: read, and never attempted, or surely failed;
    * vanished: read at some time, and missing from a read at the end: it had not been committed;
    * duplicated: read at two places.
    """

    name: ClassVar[str] = "set"
    schema: ClassVar[pa.Schema] = SCHEMA

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        parts = [
            self._appends(batch, ATTEMPTED, where(batch, kind=APPEND, outcome=OK)),
            self._appends(batch, ATTEMPTED, where(batch, kind=APPEND, outcome=FAIL)),
            self._appends(batch, ATTEMPTED, where(batch, kind=APPEND, outcome=INFO)),
            self._appends(batch, FAILED, where(batch, kind=APPEND, outcome=FAIL)),
            self._appends(batch, UNKNOWN, where(batch, kind=APPEND, outcome=INFO)),
            self._appends(batch, ACKNOWLEDGED, where(batch, kind=APPEND, outcome=OK)),
            self._found(batch, SEEN, where(batch, kind=(READ, LOCAL_READ, FINAL))),
            self._found(batch, FINALLY, where(batch, kind=FINAL)),
            self._finished(batch),
        ]
        return self.merge(parts)

    def _appends(self, batch: pa.RecordBatch, role: int, chosen: Mask) -> pa.Table:
        start = column(batch, "first_value")[chosen]
        end = start + column(batch, "count")[chosen]
        return spans(role, start, end)

    def _found(self, batch: pa.RecordBatch, role: int, chosen: Mask) -> pa.Table:
        start = column(batch, "first_value")[chosen]
        end = start + column(batch, "count")[chosen]
        whose = column(batch, "process")[chosen] * (role == FINALLY)
        offset = start - column(batch, "first_index")[chosen]
        return spans(role, start, end, whose=whose, offset=offset)

    def _finished(self, batch: pa.RecordBatch) -> pa.Table:
        whose = np.unique(column(batch, "process")[where(batch, kind=FINAL)])
        nothing = np.zeros(len(whose), dtype=np.int64)
        return spans(FINISHED, nothing, nothing + 1, whose=whose)

    def merge(self, partials: Iterable[pa.Table]) -> pa.Table:
        return merge_spans(partials)

    def findings(self, merged: pa.Table) -> Findings:
        role, whose = column(merged, "role"), column(merged, "whose")
        start, end = column(merged, "start"), column(merged, "end")

        def of(chosen: Mask) -> runs.Intervals:
            return runs.union(start[chosen], end[chosen])

        attempted, failed, seen = of(role == ATTEMPTED), of(role == FAILED), of(role == SEEN)
        acknowledged, unknown = of(role == ACKNOWLEDGED), of(role == UNKNOWN)
        readers = whose[role == FINISHED]
        finals = [of((role == FINALLY) & (whose == reader)) for reader in readers]
        everything = of(role == FINALLY)
        is_seen = role == SEEN
        counts = {
            "attempts": attempted.size,
            "acknowledged": acknowledged.size,
            "failed": failed.size,
            "unknown": unknown.size,
            "recovered": runs.common(unknown, everything),
            "read": max((final.size for final in finals), default=0),
            "final_reads": len(readers),
        }
        violations = {
            "lost": sum(runs.missing(acknowledged, final) for final in finals),
            "unexpected": runs.missing(seen, attempted) + runs.common(seen, failed),
            "vanished": sum(runs.missing(seen, final) for final in finals),
            "duplicated": runs.excess(start[is_seen], end[is_seen]),
        }
        examples = [
            _example("lost", (runs.first_missing(acknowledged, final) for final in finals)),
            _example("unexpected", [runs.first_missing(seen, attempted)]),
            _example("vanished", (runs.first_missing(seen, final) for final in finals)),
            _example("duplicated", [runs.first_overlap(start[is_seen], end[is_seen])]),
        ]
        return Findings(counts, violations, tuple(filter(None, examples)))


def _example(word: str, values: Iterable[int | None]) -> str:
    value = next((each for each in values if each is not None), None)
    return "" if value is None else f"{word}: {value_text(value)}"


def value_text(value: int) -> str:
    """A value as people read it: its process, and which of its values it is."""
    return f"value {value & ((1 << PROCESS_SHIFT) - 1)} of process {value >> PROCESS_SHIFT}"
