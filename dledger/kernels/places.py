"""One value per index, for ever, over all acknowledgements and reads, and what the final log looks like.

A row is a run, keyed by (role, whose, offset = first_value − first_index). It is ``told`` by an acknowledgement or a
read. Or it is ``final``: found by that process's read at the end, and told by it. The shards' logs together are told by
the beginning and the end of each:

::

    what       whose      at             low          high         number
    conflicts  0          an example     –            –            how many
    held       a reader   first index    behind last  shown twice  indexes that it showed
    ordered    a reader   first index    first value  last value   values of one process behind a later one
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from dledger.kernels import runs
from dledger.kernels.history import (
    APPEND,
    FINAL,
    LOCAL_READ,
    NOWHERE,
    PROCESS_SHIFT,
    READ,
    Column,
    Mask,
    column,
    picked,
    table_of,
    where,
)
from dledger.kernels.kernel import Findings
from dledger.kernels.spans import SCHEMA, merge_spans, spans

if TYPE_CHECKING:
    from dledger.kernels.overview import Overview

TOLD, FINALLY = range(2)
CONFLICTS, HELD, ORDERED = range(3)


class PlaceCheck:
    """Conflicting indexes, and the order of each process's values in the final log.

    * conflicts: an index for which two values were told;
    * out_of_order: a value right behind a later one of the same process;
    * gaps: indexes below a final read's last that it did not show, or showed twice.
    """

    name: ClassVar[str] = "places"
    schema: ClassVar[pa.Schema] = SCHEMA

    def partial(self, batch: pa.RecordBatch, overview: Overview) -> pa.Table:
        told = where(batch, kind=(APPEND, READ, LOCAL_READ))
        return merge_spans([_runs(batch, TOLD, told), _runs(batch, FINALLY, where(batch, kind=FINAL))])

    def cut(self, rows: pa.Table, overview: Overview) -> tuple[pa.Table, Column]:
        return overview.indexes.cut(rows)

    def summary(self, rows: pa.Table, overview: Overview, shard: int) -> pa.Table:
        merged = merge_spans([rows])
        _, told_start, told_end = runs.coalesce(
            [column(merged, "offset")], column(merged, "start"), column(merged, "end")
        )
        conflict = runs.first_overlap(told_start, told_end)
        parts = [
            _row(CONFLICTS, at=NOWHERE if conflict is None else conflict, number=runs.excess(told_start, told_end))
        ]
        final = picked(merged, column(merged, "role") == FINALLY)
        for reader in np.unique(column(final, "whose")):
            mine = picked(final, column(final, "whose") == reader)
            parts += [_held(int(reader), mine), _ordered(int(reader), mine)]
        return pa.concat_tables(parts)

    def findings(self, summaries: pa.Table) -> Findings:
        conflicts = _of(summaries, CONFLICTS)
        examples = conflicts.at[conflicts.at != NOWHERE]
        violations = {
            "conflicts": int(conflicts.number.sum()),
            "out_of_order": _out_of_order(_of(summaries, ORDERED)),
            "gaps": _gaps(_of(summaries, HELD)),
        }
        told = tuple(f"conflict: index {index} was told to hold two values" for index in np.sort(examples)[:1])
        return Findings({}, violations, told)


class _Told(NamedTuple):
    whose: Column
    at: Column
    low: Column
    high: Column
    number: Column


def _of(summaries: pa.Table, what: int) -> _Told:
    mine = picked(summaries, column(summaries, "what") == what)
    return _Told(*(column(mine, name) for name in _Told._fields))


def _row(what: int, *, whose: int = 0, at: int, low: int = 0, high: int = 0, number: int) -> pa.Table:
    row = {"what": what, "whose": whose, "at": at, "low": low, "high": high, "number": number}
    return table_of(**{name: np.array([value], dtype=np.int64) for name, value in row.items()})


def _runs(batch: pa.RecordBatch, role: int, chosen: Mask) -> pa.Table:
    start = column(batch, "first_index")[chosen]
    end = start + column(batch, "count")[chosen]
    offset = column(batch, "first_value")[chosen] - start
    whose = column(batch, "process")[chosen] * (role == FINALLY)
    return spans(role, start, end, whose=whose, offset=offset)


def _held(reader: int, final: pa.Table) -> pa.Table:
    start, end = column(final, "start"), column(final, "end")
    held, doubled = runs.union(start, end), runs.excess(start, end)
    return _row(HELD, whose=reader, at=int(held.starts[0]), low=int(held.ends[-1]), high=doubled, number=held.size)


def _ordered(reader: int, final: pa.Table) -> pa.Table:
    """A row for each process: where its values begin and end here, and how often one is less than the one before."""
    start, end = column(final, "start"), column(final, "end")
    value = column(final, "offset") + start
    order = np.lexsort((value, start, value >> PROCESS_SHIFT))
    start, value, last = start[order], value[order], (value + end - start - 1)[order]
    is_other = runs.changes(value >> PROCESS_SHIFT)
    is_late = ~is_other & np.append(False, value[1:] < last[:-1])
    begin = runs.begins(value >> PROCESS_SHIFT)
    behind = np.append(begin[1:], len(start))
    return table_of(
        what=np.full(len(begin), ORDERED),
        whose=np.full(len(begin), reader),
        at=start[begin],
        low=value[begin],
        high=last[behind - 1],
        number=np.add.reduceat(is_late, begin, dtype=np.int64),
    )


def _out_of_order(ordered: _Told) -> int:
    process = ordered.low >> PROCESS_SHIFT
    order = np.lexsort((ordered.at, process, ordered.whose))
    is_same = ~runs.changes(ordered.whose[order], process[order])[1:]
    return int(ordered.number.sum() + (is_same & (ordered.low[order][1:] < ordered.high[order][:-1])).sum())


def _gaps(held: _Told) -> int:
    gaps = int((held.high - held.number).sum())
    for reader in np.unique(held.whose):
        mine = held.whose == reader
        gaps += int(held.low[mine].max() - held.at[mine].min())
    return gaps
