"""One term an index, for ever, and none behind an index of a higher one: what acknowledgements and reads tell of terms.

A row is a run of one term. What a shard tells:

::

    what       whose   at             low           high          number
    conflicts  0       an example     –             –             how many indexes
    spans      a term  –              first index   behind last   –
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from dledger.kernels import runs
from dledger.kernels.history import APPEND, FINAL, LOCAL_READ, NOWHERE, READ, Column, column, picked, table_of, where
from dledger.kernels.kernel import SUMMARY, Findings, numbers
from dledger.kernels.spans import SCHEMA, merge_spans, spans

if TYPE_CHECKING:
    from dledger.kernels.overview import Overview

CONFLICTS, SPANS = range(2)


class TermCheck:
    """The terms of found or acknowledged records, as far as they are known.

    * two_terms: indexes that were told to be of more than one term;
    * falling_terms: terms with a last index at or behind an index of a higher one.
    """

    name: ClassVar[str] = "terms"
    schema: ClassVar[pa.Schema] = SCHEMA

    def partial(self, batch: pa.RecordBatch, overview: Overview) -> pa.Table:
        told = where(batch, kind=(APPEND, READ, LOCAL_READ, FINAL)) & (column(batch, "count") > 0)
        told &= column(batch, "term") > 0
        start = column(batch, "first_index")[told]
        end = start + column(batch, "count")[told]
        return merge_spans([spans(0, start, end, offset=column(batch, "term")[told])])

    def cut(self, rows: pa.Table, overview: Overview) -> tuple[pa.Table, Column]:
        return overview.indexes.cut(rows)

    def summary(self, rows: pa.Table, overview: Overview, shard: int) -> pa.Table:
        merged = merge_spans([rows])
        term, start, end = (column(merged, name) for name in ("offset", "start", "end"))
        conflicts = numbers(
            ("two_terms",), {"two_terms": runs.excess(start, end)}, {"two_terms": runs.first_overlap(start, end)}
        )
        return pa.concat_tables([conflicts, _extents(term, start, end)])

    def findings(self, summaries: pa.Table) -> Findings:
        what = column(summaries, "what")
        conflicts = picked(summaries, what == CONFLICTS)
        told = picked(summaries, what == SPANS)
        extents = _extents(column(told, "whose"), column(told, "low"), column(told, "high"))
        low, high = column(extents, "low"), column(extents, "high")
        first_of_higher = np.minimum.accumulate(low[::-1])[::-1]
        violations = {
            "two_terms": int(column(conflicts, "number").sum()),
            "falling_terms": int((first_of_higher[1:] < high[:-1]).sum()),
        }
        at = column(conflicts, "at")
        examples = tuple(f"two terms: index {index} was told to be of both" for index in np.sort(at[at != NOWHERE])[:1])
        return Findings({}, violations, examples)


def _extents(term: Column, start: Column, end: Column) -> pa.Table:
    """A row a term, by term: where it begins first and ends last."""
    if not len(term):
        return SUMMARY.empty_table()
    order = np.argsort(term, kind="stable")
    term, start, end = term[order], start[order], end[order]
    begin = runs.begins(term)
    nothing = np.zeros(len(begin), dtype=np.int64)
    return table_of(
        what=nothing + SPANS,
        whose=term[begin],
        at=nothing + NOWHERE,
        low=np.minimum.reduceat(start, begin),
        high=np.maximum.reduceat(end, begin),
        number=nothing,
    )
