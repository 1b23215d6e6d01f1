"""Rates and sizes: what is summed up, and that how the log is cut does not matter."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dledger.kernels.record_stats import RecordStats, summary

STATS = RecordStats()


def records(*rows: tuple[int, int]) -> pa.RecordBatch:
    """Of (time in ms, size in bytes)."""
    times = pa.array([1000 * ms for ms, _ in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.record_batch({"timestamp": times, "value": pa.array([b"x" * size for _, size in rows], pa.binary())})


ROWS = [(0, 0), (50, 1), (120, 127), (130, 128), (2_900, 100)]


def test_the_sums_are_by_slot_and_class() -> None:
    rows = sorted(tuple(row.values()) for row in STATS.partial(records(*ROWS)).to_pylist())
    assert rows == [(0, 0, 1, 0), (0, 1, 1, 1), (1, 7, 1, 127), (1, 8, 1, 128), (29, 7, 1, 100)]


@pytest.mark.parametrize("cut", range(len(ROWS) + 1))
def test_how_the_log_is_cut_does_not_matter(cut: int) -> None:
    halves = [STATS.partial(records(*ROWS[cut:])), STATS.partial(records(*ROWS[:cut]))]
    assert summary(STATS.merge(halves)) == summary(STATS.partial(records(*ROWS)))


def test_the_summary_tells_rate_and_the_longest_gap() -> None:
    found = summary(STATS.partial(records(*ROWS)))
    assert (found["records"], found["size_bytes"], found["seconds"], found["longest_gap_ms"]) == (5, 356, 3.0, 2_700)
    assert (found["peak_records_per_s"], found["available"]) == (4, 0.1)


def test_of_nothing_there_is_nothing_to_tell() -> None:
    assert summary(STATS.merge([]))["records"] == 0
