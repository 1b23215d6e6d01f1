"""Latency and availability, told of a history's appends."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dledger.kernels.call_stats import call_summary, course
from dledger.kernels.kernel import whole_partial
from dledger.kernels.rates import RateKernel
from tests.unit.kernels.histories import Row, append, batches_of, failed, unknown

MS = 1_000_000
S = 1_000 * MS


def merged_of(*rows: Row, size: int = 100) -> pa.Table:
    return whole_partial(RateKernel(), batches_of(rows, size))


def steadily(begin_s: int, end_s: int, took_ms: int = 20, count: int = 5) -> list[Row]:
    """An append every 100 ms, of ``count`` records."""
    starts_ms = range(1_000 * begin_s, 1_000 * end_s, 100)
    return [append(1, ms * count, (ms * MS, (ms + took_ms) * MS), index=ms * count, count=count) for ms in starts_ms]


STALLED = [*steadily(0, 3), unknown(2, 0, (3 * S, 5 * S), count=2), failed(3, 0, (3 * S, 5 * S)), *steadily(6, 10)]
"""Ten seconds, of which three went by without an acknowledgement."""


@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_summary_does_not_depend_on_how_the_history_is_cut(size: int) -> None:
    found = call_summary(merged_of(*STALLED, size=size))
    assert (found["calls"], found["calls_ok"], found["calls_failed"], found["calls_unknown"]) == (72, 70, 1, 1)
    assert (found["records"], found["records_per_call"], found["peak_records_per_s"]) == (350, 5.0, 50)
    assert found["seconds"] == pytest.approx(10, abs=0.1)


def test_availability_is_the_share_of_seconds_with_acknowledgements_and_the_longest_gap() -> None:
    found = call_summary(merged_of(*STALLED))
    assert found["available"] == 0.7
    assert found["longest_gap_ms"] == 3_090


@pytest.mark.parametrize("number", [0, 9])
def test_what_is_not_answered_first_or_last_is_a_gap_too(number: int) -> None:
    waits = unknown(2, 0, (number * S, (number + 1) * S))
    rest = steadily(1, 10) if number == 0 else steadily(0, 9)
    found = call_summary(merged_of(*rest, waits))
    assert found["available"] == 0.9
    assert found["longest_gap_ms"] == pytest.approx(1_000, abs=100)


def test_latencies_are_those_of_acknowledged_calls() -> None:
    slow = append(4, 0, (9 * S, 10 * S), index=0)
    found = call_summary(merged_of(*STALLED, slow))
    assert found["p50_ms"] == pytest.approx(20, rel=0.05)
    assert found["max_ms"] == pytest.approx(1_000, rel=0.05)


def test_of_nothing_there_is_nothing_to_tell() -> None:
    assert call_summary(merged_of()) == {"calls": 0, "records": 0, "seconds": 0.0}
    assert not len(course(merged_of(), 10).begin_s)


def test_where_nothing_is_acknowledged_nothing_is_available() -> None:
    found = call_summary(merged_of(unknown(1, 0, (0, 4 * S)), failed(1, 1, (0, 2 * S))))
    assert (found["records"], found["available"], found["p99_ms"], found["records_per_s"]) == (0, 0.0, 0.0, 0)
    assert found["longest_gap_ms"] == pytest.approx(4_000, abs=20)


def test_the_course_tells_each_second() -> None:
    told = course(merged_of(*STALLED), 100)
    assert told.begin_s.tolist() == list(range(10))
    assert told.available.tolist() == [1, 1, 1, 0, 0, 0, 1, 1, 1, 1]
    assert told.records_per_s["ok"][:9].tolist() == [50, 50, 50, 0, 0, 0, 50, 50, 50]
    assert told.records_per_s["ok"][9] == pytest.approx(50, rel=0.1)  # of a second that is not quite one
    assert told.records_per_s["unknown"].tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 0]
    assert np.isnan(told.latency_ms["p99"][3:6]).all()
    assert told.latency_ms["max"][[0, 9]] == pytest.approx([20, 20], rel=0.05)
    assert told.records_per_call[0] == 5


@pytest.mark.parametrize(("most", "step_s", "steps"), [(10, 1, 10), (9, 2, 5), (3, 4, 3), (1, 10, 1)])
def test_a_course_has_no_more_steps_than_asked_for(most: int, step_s: int, steps: int) -> None:
    told = course(merged_of(*STALLED), most)
    assert (told.step_s, len(told.begin_s)) == (step_s, steps)
    lengths_s = np.minimum(step_s, 10 - told.begin_s)
    assert (told.records_per_s["ok"] * lengths_s).sum() == pytest.approx(350, rel=0.02)
    assert (told.available * lengths_s).sum() == pytest.approx(7)


def test_a_clock_that_does_not_begin_with_the_history_makes_no_gap() -> None:
    hour_ns = 3_600 * S
    later = [append(1, n, (hour_ns + n * S, hour_ns + n * S + 5 * MS), index=n) for n in range(3)]
    found = call_summary(merged_of(*later))
    assert found["seconds"] == pytest.approx(2.01, abs=0.02)
    assert found["available"] == 1.0
