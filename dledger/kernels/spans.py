"""Partial results that are spans of whole numbers, each in a role. A span is joined to one that begins at its end."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger.kernels import runs
from dledger.kernels.history import column, joined, table_of

KEY = ("role", "whose", "offset")
SCHEMA = pa.schema([(name, pa.int64()) for name in (*KEY, "start", "end")])

Integers = npt.NDArray[np.int64]


def spans(
    role: int, start: Integers, end: Integers, *, whose: Integers | int = 0, offset: Integers | int = 0
) -> pa.Table:
    """A table of ``SCHEMA``, a row for each ``start``."""
    role_, whose_, offset_ = (np.broadcast_to(np.int64(each), start.shape) for each in (role, whose, offset))
    return table_of(role=role_, whose=whose_, offset=offset_, start=start, end=end)


def merge_spans(partials: Iterable[pa.Table]) -> pa.Table:
    """Joins the spans that touch under one key."""
    table = joined(SCHEMA, partials)
    keys = [column(table, name) for name in KEY]
    (role, whose, offset), start, end = runs.coalesce(keys, column(table, "start"), column(table, "end"))
    return table_of(role=role, whose=whose, offset=offset, start=start, end=end)
