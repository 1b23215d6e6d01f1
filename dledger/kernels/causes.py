"""Cause and effect: no value is read before its append was invoked.

::

    row       low            high          at_ns
    invoked   first value    behind last   invoked_ns
    found     first value    behind last   completed_ns

Rows that the overview clears are left out: of most blocks of values, all were invoked before one was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from dledger.kernels.history import FINAL, LOCAL_READ, READ, Column, attempts, column, picked, table_of, where
from dledger.kernels.invocations import Invocations
from dledger.kernels.kernel import Findings, added, numbers
from dledger.kernels.shards import block_of, blocks_of

if TYPE_CHECKING:
    from dledger.kernels.overview import Overview

INVOKED, FOUND = range(2)
NUMBERS = ("premature",)


class CauseCheck:
    """``premature``: a process's append, invoked after a read had returned a value of it, as the last one of a run. A
    process's appends follow each other, so the others of the run had been invoked before."""

    name: ClassVar[str] = "causes"
    schema: ClassVar[pa.Schema] = pa.schema([(name, pa.int64()) for name in ("row", "low", "high", "at_ns")])

    def partial(self, batch: pa.RecordBatch, overview: Overview) -> pa.Table:
        low, count = column(batch, "first_value"), column(batch, "count")
        invoked = attempts(batch)
        block, place = blocks_of(low[invoked], (low + count)[invoked])
        suspected = np.zeros(int(invoked.sum()), dtype=np.bool_)
        suspected[place[overview.may_be_early(block)]] = True
        invoked[invoked] = suspected
        found = where(batch, kind=(READ, LOCAL_READ, FINAL)) & (count > 0)
        found &= overview.may_be_early(block_of(low + count - 1))
        parts = ((INVOKED, invoked, "invoked_ns"), (FOUND, found, "completed_ns"))
        return pa.concat_tables(
            _rows(row, low[chosen], (low + count)[chosen], column(batch, at)[chosen]) for row, chosen, at in parts
        )

    def cut(self, rows: pa.Table, overview: Overview) -> tuple[pa.Table, Column]:
        """A found row goes to the shard of its last value."""
        found = picked(rows, column(rows, "row") == FOUND)
        invoked, shard = overview.values.cut(picked(rows, column(rows, "row") == INVOKED), "low", "high")
        return pa.concat_tables([invoked, found]), np.append(shard, overview.values.of(column(found, "high") - 1))

    def summary(self, rows: pa.Table, overview: Overview, shard: int) -> pa.Table:
        row, low, high, at_ns = (column(rows, name) for name in ("row", "low", "high", "at_ns"))
        invoked, found = row == INVOKED, row == FOUND
        begun = Invocations(low[invoked], high[invoked], at_ns[invoked])
        last = high[found] - 1
        premature = np.unique(last[at_ns[found] < begun.of(last)])
        return numbers(
            NUMBERS, {"premature": len(premature)}, {"premature": int(premature[0])} if len(premature) else {}
        )

    def findings(self, summaries: pa.Table) -> Findings:
        return Findings({}, *added(NUMBERS, summaries))


def _rows(row: int, low: Column, high: Column, at_ns: Column) -> pa.Table:
    nothing = np.zeros(len(low), dtype=np.int64)
    return table_of(row=nothing + row, low=low, high=high, at_ns=at_ns)
