"""Order in real time: what happens after something was known happens behind it.

An index is **known** from the moment an append of it is acknowledged, or a read that shows it returns. After that, an
append that is invoked gets a higher index, and a linearizable read that is invoked shows the index.

::

    row       at_ns            index              low                    high
    known     completed_ns     the last one       –                      –
    append    invoked_ns       its first one      –                      –
    read      invoked_ns       its last one       –                      –
    invoked   invoked_ns       –                  first value            behind the last
    found     completed_ns     first index        first value            behind the last, by a read

``found`` rows tell where appends of unknown outcome ended up, and that nothing was read before it was invoked.
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
    NOWHERE,
    OK,
    READ,
    Column,
    Mask,
    column,
    table_of,
    where,
)
from dledger.kernels.kernel import Findings, joined
from dledger.kernels.sets import value_text

KNOWN, APPENDED, READ_TO, INVOKED, FOUND = range(5)
BEGINNING = np.iinfo(np.int64).min


class TimeOrderKernel:
    """Appends and reads that run behind what was known.

    * reordered: an append invoked when an index was known that got a lower one, or that very one;
    * stale: a linearizable read that ended below an index known when it was invoked;
    * premature: values that were read before their append was invoked.
    """

    name: ClassVar[str] = "time-order"
    schema: ClassVar[pa.Schema] = pa.schema([(name, pa.int64()) for name in ("row", "at_ns", "index", "low", "high")])

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        acked = where(batch, kind=APPEND)
        linearizable = where(batch, kind=(READ, FINAL))
        found = where(batch, kind=(READ, LOCAL_READ, FINAL))
        first, count = column(batch, "first_index"), column(batch, "count")
        last_read = column(batch, "read_end") - 1
        parts = [
            _rows(batch, KNOWN, acked, "completed_ns", first + count - 1),
            _rows(batch, APPENDED, acked, "invoked_ns", first),
            _rows(batch, KNOWN, found, "completed_ns", last_read),
            _rows(batch, READ_TO, linearizable, "invoked_ns", last_read),
            _rows(batch, FOUND, found & (count > 0), "completed_ns", first),
        ]
        parts += [
            _rows(batch, INVOKED, where(batch, kind=APPEND, outcome=outcome), "invoked_ns", first)
            for outcome in (OK, FAIL, INFO)
        ]
        return self.merge(parts)

    def merge(self, partials: Iterable[pa.Table]) -> pa.Table:
        """Drops what can decide nothing: an index known later than a higher one, the many rows of one read, and what
        was found where it had been found before."""
        table = joined(self.schema, partials)
        row, at_ns, index = column(table, "row"), column(table, "at_ns"), column(table, "index")
        low, high = column(table, "low"), column(table, "high")
        kept = np.isin(row, (APPENDED, INVOKED))
        kept[_leading(np.flatnonzero(row == KNOWN), at_ns, index)] = True
        kept[_first_of_each(np.flatnonzero(row == READ_TO), at_ns, index)] = True
        kept[_first_of_each(np.flatnonzero(row == FOUND), index, low, high, earliest=at_ns)] = True
        return table.filter(pa.array(kept))

    def findings(self, merged: pa.Table) -> Findings:
        row, at_ns, index = column(merged, "row"), column(merged, "at_ns"), column(merged, "index")
        low, high = column(merged, "low"), column(merged, "high")
        known = _Known(at_ns[row == KNOWN], index[row == KNOWN])
        appended, read_to, found = row == APPENDED, row == READ_TO, row == FOUND
        begun = _Invocations(low[row == INVOKED], high[row == INVOKED], at_ns[row == INVOKED])
        reordered = low[appended][index[appended] <= known.before(at_ns[appended])]
        # An append of unknown outcome that was found got its place after it was invoked as well.
        misplaced = low[found][index[found] <= known.before(begun.of(low[found]))]
        stale = index[read_to] < known.before(at_ns[read_to])
        premature = low[found][at_ns[found] < begun.of(high[found] - 1)]
        violations = {
            "reordered": len(np.unique(np.append(reordered, misplaced))),
            "stale": int(stale.sum()),
            "premature": len(np.unique(premature)),
        }
        examples = [
            _example("reordered", reordered),
            _example("reordered", misplaced),
            _example("premature", premature),
        ]
        return Findings({}, violations, tuple(filter(None, examples)))


class _Known:
    """What was known when."""

    def __init__(self, at_ns: Column, index: Column) -> None:
        order = np.argsort(at_ns, kind="stable")
        self._at_ns = at_ns[order]
        self._highest = np.append(NOWHERE, np.maximum.accumulate(index[order])) if len(order) else np.array([NOWHERE])

    def before(self, at_ns: Column) -> Column:
        """The highest index that was known before each time."""
        return np.asarray(self._highest[np.searchsorted(self._at_ns, at_ns, side="left")])


class _Invocations:
    """When the append of a value was invoked."""

    def __init__(self, low: Column, high: Column, at_ns: Column) -> None:
        order = np.argsort(low, kind="stable")
        self._low, self._high, self._at_ns = low[order], high[order], at_ns[order]

    def of(self, value: Column) -> Column:
        """Of values that nobody appended, the beginning of time: they are another kernel's to find."""
        if not len(self._low):
            return np.full(len(value), BEGINNING)
        place = np.searchsorted(self._low, value, side="right") - 1
        is_there = (place >= 0) & (value < self._high[place])
        return np.where(is_there, self._at_ns[place], BEGINNING)


def _rows(batch: pa.RecordBatch, row: int, chosen: Mask, at: str, index: Column) -> pa.Table:
    low = column(batch, "first_value")[chosen]
    high = low + column(batch, "count")[chosen]
    rows = np.full(len(low), row, dtype=np.int64)
    return table_of(row=rows, at_ns=column(batch, at)[chosen], index=index[chosen], low=low, high=high)


def _leading(places: Column, at_ns: Column, index: Column) -> Column:
    """Of the rows at ``places``, those with a higher index than all before them in time."""
    order = places[np.lexsort((-index[places], at_ns[places]))]
    if not len(order):
        return order
    highest = np.append(NOWHERE, np.maximum.accumulate(index[order])[:-1])
    return np.asarray(order[index[order] > highest])


def _first_of_each(places: Column, *alike: Column, earliest: Column | None = None) -> Column:
    """Of the rows at ``places``, one of those that are ``alike`` in all these columns: by that one, the earliest."""
    keys = [each[places] for each in alike]
    least = [] if earliest is None else [earliest[places]]
    order = np.lexsort((*least, *reversed(keys)))
    first = runs.changes(*(key[order] for key in keys))
    first[:1] = True
    return np.asarray(places[order[first]])


def _example(word: str, values: Column) -> str:
    return f"{word}: {value_text(int(values[0]))}" if len(values) else ""
