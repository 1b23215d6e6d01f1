"""The records that each read showed of the range it names: every index once.

A row is a read, or the part of it in one batch: the range, and how many records its rows hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from dledger.kernels.history import FINAL, LOCAL_READ, READ, Column, column, joined, picked, where
from dledger.kernels.kernel import Findings, added, numbers

if TYPE_CHECKING:
    from dledger.kernels.overview import Overview

_KEY = ("process", "call", "read_start", "read_end")


NUMBERS = ("reads", "incomplete", "overfull")
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: what is alike in its low bits is spread over the high ones."""


class RangeCheck:
    """Reads with holes (``incomplete``: fewer records than indexes) or doubles (``overfull``)."""

    name: ClassVar[str] = "ranges"
    schema: ClassVar[pa.Schema] = pa.schema([(name, pa.int64()) for name in (*_KEY, "count")])

    def partial(self, batch: pa.RecordBatch, overview: Overview) -> pa.Table:
        chosen = where(batch, kind=(READ, LOCAL_READ, FINAL))
        return _summed([picked(pa.Table.from_batches([batch]).select(self.schema.names), chosen)])

    def cut(self, rows: pa.Table, overview: Overview) -> tuple[pa.Table, Column]:
        mixed = (column(rows, "process") * 31 + column(rows, "call")).astype(np.uint64) * _SPREAD
        return rows, ((mixed >> np.uint64(32)) % np.uint64(overview.count)).astype(np.int64)

    def summary(self, rows: pa.Table, overview: Overview, shard: int) -> pa.Table:
        summed = _summed([rows])
        wanted = column(summed, "read_end") - column(summed, "read_start")
        held = column(summed, "count")
        found = {
            "reads": summed.num_rows,
            "incomplete": int((held < wanted).sum()),
            "overfull": int((held > wanted).sum()),
        }
        return numbers(NUMBERS, found, {})

    def findings(self, summaries: pa.Table) -> Findings:
        sums, _ = added(NUMBERS, summaries)
        return Findings({"reads": sums.pop("reads")}, sums)


def _summed(parts: Iterable[pa.Table]) -> pa.Table:
    """The parts of each read, added up."""
    summed = joined(RangeCheck.schema, parts).group_by(_KEY).aggregate([("count", "sum")])
    return pa.table({**{name: summed.column(name) for name in _KEY}, "count": summed.column("count_sum")})
