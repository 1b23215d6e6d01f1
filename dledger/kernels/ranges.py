"""What each read showed of the range that it said it showed: every index once.

The partial has a row a read: the range, and how many records its rows hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import pyarrow as pa

from dledger.kernels.history import FINAL, LOCAL_READ, READ, column, where
from dledger.kernels.kernel import Findings, joined

_KEY = ("process", "call", "read_start", "read_end")


class RangeKernel:
    """Reads with holes (``incomplete``: fewer records than indexes) or doubles (``overfull``)."""

    name: ClassVar[str] = "ranges"
    schema: ClassVar[pa.Schema] = pa.schema([(name, pa.int64()) for name in (*_KEY, "count")])

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        chosen = pa.array(where(batch, kind=(READ, LOCAL_READ, FINAL)))
        return self.merge([pa.Table.from_batches([batch]).select([*_KEY, "count"]).filter(chosen)])

    def merge(self, partials: Iterable[pa.Table]) -> pa.Table:
        """Adds the parts of each read up."""
        summed = joined(self.schema, partials).group_by(_KEY).aggregate([("count", "sum")])
        return summed.rename_columns([*_KEY, "count"] if summed.column_names[-1] == "count_sum" else ["count", *_KEY])

    def findings(self, merged: pa.Table) -> Findings:
        wanted = column(merged, "read_end") - column(merged, "read_start")
        held = column(merged, "count")
        violations = {"incomplete": int((held < wanted).sum()), "overfull": int((held > wanted).sum())}
        return Findings({"reads": merged.num_rows}, violations)
