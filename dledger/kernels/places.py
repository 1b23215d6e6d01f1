"""One value per index, for ever, over all acknowledgements and reads, and what the final log looks like.

The partial holds runs, keyed by (role, whose, offset = first_value − first_index): ``told`` by an acknowledgement or a
read, or ``final``, found by that process's read at the end; and the ranges that final reads covered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dledger.kernels import runs
from dledger.kernels.history import (
    APPEND,
    FINAL,
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

TOLD, FINALLY = range(2)


class PlaceKernel:
    """Conflicting indexes, and the order of each process's values in the final log.

    * conflicts: an index for which two values were told;
    * out_of_order: a value behind a later one of the same process;
    * gaps: indexes below a final read's last that it did not show, or showed twice.
    """

    name: ClassVar[str] = "places"
    schema: ClassVar[pa.Schema] = SCHEMA

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        told = where(batch, kind=(APPEND, READ, LOCAL_READ, FINAL), outcome=OK)
        return self.merge([self._runs(batch, TOLD, told), self._runs(batch, FINALLY, where(batch, kind=FINAL))])

    def _runs(self, batch: pa.RecordBatch, role: int, chosen: Mask) -> pa.Table:
        start = column(batch, "first_index")[chosen]
        end = start + column(batch, "count")[chosen]
        offset = column(batch, "first_value")[chosen] - start
        whose = column(batch, "process")[chosen] * (role == FINALLY)
        return spans(role, start, end, whose=whose, offset=offset)

    def merge(self, partials: Iterable[pa.Table]) -> pa.Table:
        return merge_spans(partials)

    def findings(self, merged: pa.Table) -> Findings:
        role, start, end = column(merged, "role"), column(merged, "start"), column(merged, "end")
        whose = column(merged, "whose")
        is_told = role == TOLD
        gaps = out_of_order = 0
        for reader in np.unique(whose[role == FINALLY]):
            mine = (role == FINALLY) & (whose == reader)
            held = runs.union(start[mine], end[mine])
            gaps += int(held.ends[-1] - held.starts[0]) - held.size + runs.excess(start[mine], end[mine])
            out_of_order += _out_of_order(merged.filter(pa.array(mine)))
        conflict = runs.first_overlap(start[is_told], end[is_told])
        examples = () if conflict is None else (f"conflict: index {conflict} was told to hold two values",)
        violations = {
            "conflicts": runs.excess(start[is_told], end[is_told]),
            "out_of_order": out_of_order,
            "gaps": gaps,
        }
        return Findings({}, violations, examples)


def _out_of_order(final: pa.Table) -> int:
    """Runs of one reader's log that begin below what the same process had before them."""
    start, end = column(final, "start"), column(final, "end")
    value = column(final, "offset") + start
    process = value >> PROCESS_SHIFT
    order = np.lexsort((start, process))
    process, value, last = process[order], value[order], (value + end - start - 1)[order]
    is_other = runs.changes(process)
    highest = runs.running_maximum(is_other, last)
    return int((~is_other[1:] & (value[1:] < highest[:-1])).sum())
