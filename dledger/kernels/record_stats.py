"""Rates and sizes of a log's records: how many, and how many bytes, in each tenth of a second and each class of sizes.

::

    slot          size_class  records  size_bytes
    17600000000   7           812      101500        100 ms from slot · 100 ms on; records of 64 to 127 bytes
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dledger.kernels.history import joined

SLOT_MS: Final = 100
SLOTS_PER_S: Final = 1000 // SLOT_MS
_KEY = ("slot", "size_class")


class RecordStats:
    """Of batches with the columns ``timestamp`` (µs) and ``value``."""

    schema: ClassVar[pa.Schema] = pa.schema([(name, pa.int64()) for name in (*_KEY, "records", "size_bytes")])

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        """Of a batch of records."""
        sizes = pc.binary_length(batch.column("value")).to_numpy(zero_copy_only=False).astype(np.int64)
        times_us = batch.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
        columns = {
            "slot": times_us // (1000 * SLOT_MS),
            "size_class": size_classes(sizes),
            "records": np.ones(len(sizes), dtype=np.int64),
            "size_bytes": sizes,
        }
        return self.merge([pa.table(columns, schema=self.schema)])

    def merge(self, partials: Iterable[pa.Table]) -> pa.Table:
        """One partial of several, in any order."""
        summed = joined(self.schema, partials).group_by(_KEY).aggregate([("records", "sum"), ("size_bytes", "sum")])
        names = {name: name for name in _KEY} | {"records": "records_sum", "size_bytes": "size_bytes_sum"}
        return pa.table({name: summed.column(source) for name, source in names.items()}, schema=self.schema)


def size_classes(sizes: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """0 for an empty record, else how many bits its size takes."""
    classes: np.ndarray[Any, np.dtype[np.int64]] = np.ceil(np.log2(sizes + 1.0)).astype(np.int64)
    return classes


def summary(merged: pa.Table) -> dict[str, Any]:
    """Of the whole log's partial: totals, rates, and the longest time in which nothing was appended."""
    slots, records = _column(merged, "slot"), _column(merged, "records")
    size_bytes = _column(merged, "size_bytes")
    if not len(slots):
        return {"records": 0, "size_bytes": 0, "seconds": 0.0}
    busy = np.unique(slots)
    by_second = np.bincount((slots - busy[0]) // SLOTS_PER_S, weights=records)
    seconds = (int(busy[-1]) - int(busy[0]) + 1) / SLOTS_PER_S
    gaps = np.diff(busy) - 1
    return {
        "records": int(records.sum()),
        "size_bytes": int(size_bytes.sum()),
        "mean_bytes": round(float(size_bytes.sum() / records.sum()), 1),
        "seconds": seconds,
        "records_per_s": round(float(records.sum() / seconds)),
        "peak_records_per_s": int(by_second.max()),
        "longest_gap_ms": int(gaps.max() * SLOT_MS) if len(gaps) else 0,
        "available": round(len(busy) / (seconds * SLOTS_PER_S), 4),
    }


def _column(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    values: np.ndarray[Any, np.dtype[np.int64]] = table.column(name).to_numpy()
    return values
