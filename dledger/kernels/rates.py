"""How much happened when, and how long it took: counts by time and latency, for pictures and for availability.

The partial is a histogram. It has the number of calls and records for each slot of time in which appends ended, each
outcome and each class of latency. Slots are 10 ms; a latency's class is 8 to the octave.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dledger.kernels.history import APPEND, FAIL, INFO, OK, Column, column, joined, table_of, where

SLOT_NS = 10_000_000
CLASSES_PER_OCTAVE = 8
OUTCOMES = (OK, FAIL, INFO)
_KEY = ("outcome", "slot", "latency_class")


class RateKernel:
    """``outcome`` counts ``OUTCOMES``."""

    schema: ClassVar[pa.Schema] = pa.schema([(name, pa.int64()) for name in (*_KEY, "calls", "records")])

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        return self.merge(_rows(batch, number) for number in range(len(OUTCOMES)))

    def merge(self, partials: Iterable[pa.Table]) -> pa.Table:
        table = joined(self.schema, partials)
        summed = table.group_by(_KEY).aggregate([("calls", "sum"), ("records", "sum")])
        return pa.table(
            {name: summed.column(name) for name in _KEY}
            | {"calls": summed.column("calls_sum"), "records": summed.column("records_sum")}
        )


def _rows(batch: pa.RecordBatch, number: int) -> pa.Table:
    chosen = where(batch, kind=APPEND, outcome=OUTCOMES[number])
    return _counted(
        np.full(int(chosen.sum()), number, dtype=np.int64),
        column(batch, "invoked_ns")[chosen],
        column(batch, "completed_ns")[chosen],
        column(batch, "count")[chosen],
    )


def _counted(outcome: Column, invoked_ns: Column, completed_ns: Column, records: Column) -> pa.Table:
    latency_ns = np.maximum(completed_ns - invoked_ns, 1)
    return table_of(
        outcome=outcome,
        slot=completed_ns // SLOT_NS,
        latency_class=np.floor(np.log2(latency_ns) * CLASSES_PER_OCTAVE).astype(np.int64),
        calls=np.ones(len(completed_ns), dtype=np.int64),
        records=records,
    )


def rates_of(outcome: Column, invoked_ns: Column, completed_ns: Column) -> pa.Table:
    """As of ``RateKernel``, of operations of one record each. ``outcome``: the place in ``OUTCOMES``."""
    one = np.ones(len(outcome), dtype=np.int64)
    return RateKernel().merge([_counted(outcome, invoked_ns, completed_ns, one)])


def acknowledged_slots(merged: pa.Table) -> Column:
    """The slots in which something was acknowledged, ascending."""
    return np.unique(column(merged, "slot")[column(merged, "outcome") == OUTCOMES.index(OK)])


def latency_ms(latency_class: Column) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The middle of each class."""
    return np.asarray(np.exp2((latency_class + 0.5) / CLASSES_PER_OCTAVE) / 1e6, dtype=np.float64)


def percentile_ms(latency_class: Column, calls: Column, share: float) -> float:
    """The latency that ``share`` of the calls did not exceed; 0 of no calls."""
    if not len(calls):
        return 0.0
    order = np.argsort(latency_class)
    reached = np.cumsum(calls[order])
    place = int(np.searchsorted(reached, share * reached[-1]))
    return float(latency_ms(latency_class[order][min(place, len(order) - 1)]))
