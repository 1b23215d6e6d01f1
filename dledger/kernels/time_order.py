"""Order in real time: what happens after something was known happens behind it.

An index is **known** from the moment an append of it is acknowledged, or a read that shows it returns. After that, a
later append gets a higher index, and a later linearizable read shows the index.

::

    row       index            at_ns             value
    known     the last one     completed_ns      –
    append    the first one    invoked_ns        the first one
    read      the last one     invoked_ns        –

An append of unknown outcome is an ``append`` where a read found it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from dledger.kernels import runs
from dledger.kernels.history import (
    APPEND,
    FINAL,
    LOCAL_READ,
    READ,
    Column,
    Mask,
    column,
    joined,
    picked,
    table_of,
    where,
)
from dledger.kernels.invocations import BEGINNING
from dledger.kernels.kernel import Findings, added, numbers

if TYPE_CHECKING:
    from dledger.kernels.overview import Overview

KNOWN, APPENDED, READ_TO = range(3)
NUMBERS = ("reordered", "stale")


class TimeOrderCheck:
    """Appends and reads that run behind a known index.

    * reordered: an append with a lower index than one known when it was invoked, or with the same;
    * stale: a linearizable read that ended below an index known when it was invoked.
    """

    name: ClassVar[str] = "time-order"
    schema: ClassVar[pa.Schema] = pa.schema([(name, pa.int64()) for name in ("row", "index", "at_ns", "value")])

    def partial(self, batch: pa.RecordBatch, overview: Overview) -> pa.Table:
        acked = where(batch, kind=APPEND)
        read = where(batch, kind=(READ, LOCAL_READ, FINAL))
        first, count = column(batch, "first_index"), column(batch, "count")
        invoked_ns, completed_ns = column(batch, "invoked_ns"), column(batch, "completed_ns")
        value, last_read = column(batch, "first_value"), column(batch, "read_end") - 1
        linearizable = where(batch, kind=(READ, FINAL))
        begun_ns = overview.unknown.of(value)
        found = read & (count > 0) & (begun_ns != BEGINNING)
        return self._merged(
            [
                _rows(KNOWN, (first + count - 1)[acked], completed_ns[acked]),
                _rows(KNOWN, last_read[read], completed_ns[read]),
                _rows(APPENDED, first[acked], invoked_ns[acked], value[acked]),
                _rows(APPENDED, first[found], begun_ns[found], value[found]),
                _rows(READ_TO, last_read[linearizable], invoked_ns[linearizable]),
            ]
        )

    def _merged(self, parts: Iterable[pa.Table]) -> pa.Table:
        """Drops rows that can decide nothing. These are an index known later than a higher one, the many rows of one
        read, and repeated finds at one place."""
        table = joined(self.schema, parts)
        row, index, at_ns = column(table, "row"), column(table, "index"), column(table, "at_ns")
        value = column(table, "value")
        leading = _leading(np.flatnonzero(row == KNOWN), index, at_ns)
        once = _one_of_each(np.flatnonzero(row != KNOWN), row, index, at_ns, value)
        return picked(table, np.append(leading, once))

    def cut(self, rows: pa.Table, overview: Overview) -> tuple[pa.Table, Column]:
        return rows, overview.indexes.of(column(rows, "index"))

    def summary(self, rows: pa.Table, overview: Overview, shard: int) -> pa.Table:
        merged = self._merged([rows])
        row, index, at_ns = column(merged, "row"), column(merged, "index"), column(merged, "at_ns")
        value = column(merged, "value")
        is_known, appended, read_to = row == KNOWN, row == APPENDED, row == READ_TO
        known = _Known(index[is_known], at_ns[is_known], overview.earliest_known_behind(shard))
        reordered = value[appended][known.from_on(index[appended]) < at_ns[appended]]
        stale = known.from_on(index[read_to] + 1) < at_ns[read_to]
        found = {"reordered": len(reordered), "stale": int(stale.sum())}
        return numbers(NUMBERS, found, {"reordered": int(reordered.min())} if len(reordered) else {})

    def findings(self, summaries: pa.Table) -> Findings:
        return Findings({}, *added(NUMBERS, summaries))


class _Known:
    """When an index or a later one was first known."""

    def __init__(self, index: Column, at_ns: Column, behind_ns: int) -> None:
        order = np.argsort(index, kind="stable")
        self._index = index[order]
        self._earliest_ns = np.minimum.accumulate(np.append(at_ns[order], behind_ns)[::-1])[::-1]

    def from_on(self, index: Column) -> Column:
        return np.asarray(self._earliest_ns[np.searchsorted(self._index, index, side="left")])


def _rows(row: int, index: Column, at_ns: Column, value: Column | None = None) -> pa.Table:
    nothing = np.zeros(len(index), dtype=np.int64)
    return table_of(row=nothing + row, index=index, at_ns=at_ns, value=nothing if value is None else value)


def _leading(places: Column, index: Column, at_ns: Column) -> Column:
    """Of the rows at ``places``, those that are earlier than all of a higher index."""
    order = places[np.lexsort((at_ns[places], -index[places]))]
    if not len(order):
        return order
    earliest = np.minimum.accumulate(at_ns[order])
    is_earlier = np.append(True, at_ns[order][1:] < earliest[:-1])
    return np.asarray(order[is_earlier])


def _one_of_each(places: Column, *alike: Column) -> Column:
    """Of the rows at ``places``, one of those that are ``alike`` in all these columns."""
    keys = [each[places] for each in alike]
    order = np.lexsort(keys[::-1])
    is_first: Mask = runs.changes(*(key[order] for key in keys))
    is_first[:1] = True
    return np.asarray(places[order[is_first]])
