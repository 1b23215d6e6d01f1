"""Latency, rates and availability of a history's appends, told from the merged partial of ``RateKernel``.

Times are as fine as its slots, 10 ms; latencies as its classes, 8 to the octave, so that they are right to 5 %.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger.kernels.history import OK, Column, column
from dledger.kernels.rates import OUTCOMES, SLOT_NS, acknowledged_slots, latency_ms, percentile_ms

SLOTS_PER_S: Final = 1_000_000_000 // SLOT_NS
SHARES: Final = {"p50": 0.5, "p99": 0.99, "max": 1.0}
"""The latencies told: the share of the acknowledged calls that took no longer."""
ACKNOWLEDGED: Final = OUTCOMES.index(OK)
WORDS: Final = ("ok", "failed", "unknown")
"""What ``OUTCOMES`` are called here."""

Numbers = npt.NDArray[np.float64]


class Course(NamedTuple):
    """The course over time, in steps of whole seconds; NaN if no call was acknowledged."""

    begin_s: Numbers
    """Of each step, since the first append was invoked."""
    step_s: int
    latency_ms: dict[str, Numbers]
    """By the names of ``SHARES``."""
    records_per_s: dict[str, Numbers]
    """By ``WORDS``."""
    records_per_call: Numbers
    available: Numbers
    """The share of the step's seconds in which something was acknowledged."""


def call_summary(merged: pa.Table) -> dict[str, Any]:
    """Totals, latencies and availability of the whole history. Only acknowledged records are ``records``."""
    outcome, calls, records = (column(merged, name) for name in ("outcome", "calls", "records"))
    if not len(calls):
        return {"calls": 0, "records": 0, "seconds": 0.0}
    by_word = {word: outcome == number for number, word in enumerate(WORDS)}
    is_ok = by_word["ok"]
    latency_class = column(merged, "latency_class")[is_ok]
    begin, end = span(merged)
    seconds = (end - begin) / SLOTS_PER_S
    acknowledged = int(records[is_ok].sum())
    latencies = {f"{name}_ms": percentile_ms(latency_class, calls[is_ok], share) for name, share in SHARES.items()}
    return {
        "calls": int(calls.sum()),
        **{f"calls_{word}": int(calls[mine].sum()) for word, mine in by_word.items()},
        "records": acknowledged,
        "seconds": seconds,
        "records_per_s": round(acknowledged / seconds),
        "peak_records_per_s": _peak((column(merged, "slot")[is_ok] - begin) // SLOTS_PER_S, records[is_ok]),
        "records_per_call": round(acknowledged / max(int(calls[is_ok].sum()), 1), 1),
        **{name: round(value, 2) for name, value in latencies.items()},
        **availability(acknowledged_slots(merged), begin, end),
    }


def availability(slots: Column, begin: int, end: int) -> dict[str, Any]:
    """The share of the seconds from ``begin`` to ``end`` with one of the ``slots``, and the longest time without. The
    times before the first and behind the last one count, too. A last second that was half over counts, less of one does
    not."""
    whole_seconds = max(round((end - begin) / SLOTS_PER_S), 1)
    busy = np.unique((slots - begin) // SLOTS_PER_S)
    waits = np.diff(np.concatenate([[begin - 1], slots, [end]])) - 1
    return {
        "available": round(int((busy < whole_seconds).sum()) / whole_seconds, 4),
        "longest_gap_ms": int(waits.max()) * SLOT_NS // 1_000_000,
    }


def span(merged: pa.Table) -> tuple[int, int]:
    """The slots from the first append's invocation until behind the last one's end. The partial must not be empty.

    An invocation is known by its latency's class: it is not put before time 0, where a fault test's clock begins."""
    slot = column(merged, "slot")
    took = latency_ms(column(merged, "latency_class")) * 1e6 / SLOT_NS
    earliest = int(np.floor((slot - took).min()))
    return (max(earliest, 0) if slot.min() >= 0 else earliest), int(slot.max()) + 1


def course(merged: pa.Table, most_steps: int) -> Course:
    """In no more than ``most_steps`` steps, however long the history is."""
    if not merged.num_rows:
        nothing = np.array([])
        return Course(nothing, 1, dict.fromkeys(SHARES, nothing), dict.fromkeys(WORDS, nothing), nothing, nothing)
    begin, end = span(merged)
    seconds = -(-(end - begin) // SLOTS_PER_S)
    step_s = -(-seconds // most_steps)
    steps = -(-seconds // step_s)
    outcome, calls, records = (column(merged, name) for name in ("outcome", "calls", "records"))
    at = (column(merged, "slot") - begin) // (SLOTS_PER_S * step_s)

    def summed(numbers: Column, number: int) -> Numbers:
        mine = outcome == number
        return np.bincount(at[mine], weights=numbers[mine], minlength=steps).astype(np.float64)

    # The last step may be a part of one, and its last second of a second.
    begin_s = np.arange(0, steps * step_s, step_s, dtype=np.float64)
    lengths_s = np.minimum(step_s, (end - begin) / SLOTS_PER_S - begin_s)
    available_s = np.minimum(step_s, seconds - begin_s)
    busy = np.unique((acknowledged_slots(merged) - begin) // SLOTS_PER_S) // step_s
    acknowledged_calls = summed(calls, ACKNOWLEDGED)
    with np.errstate(invalid="ignore"):
        records_per_call = summed(records, ACKNOWLEDGED) / acknowledged_calls
    return Course(
        begin_s=begin_s,
        step_s=step_s,
        latency_ms=_latencies(merged.append_column("step", pa.array(at)), steps),
        records_per_s={word: summed(records, number) / lengths_s for number, word in enumerate(WORDS)},
        records_per_call=records_per_call,
        available=np.bincount(busy, minlength=steps) / available_s,
    )


def _latencies(stepped: pa.Table, steps: int) -> dict[str, Numbers]:
    acknowledged = stepped.filter(pa.array(column(stepped, "outcome") == ACKNOWLEDGED)).sort_by("step")
    step, latency_class, calls = (column(acknowledged, name) for name in ("step", "latency_class", "calls"))
    bounds = np.searchsorted(step, np.arange(steps + 1))
    found = {name: np.full(steps, np.nan) for name in SHARES}
    for place in np.unique(step):
        rows = slice(bounds[place], bounds[place + 1])
        for name, share in SHARES.items():
            found[name][place] = percentile_ms(latency_class[rows], calls[rows], share)
    return found


def _peak(second: Column, records: Column) -> int:
    if not len(second):
        return 0
    _, place = np.unique(second, return_inverse=True)
    return int(np.bincount(place, weights=records).max())
