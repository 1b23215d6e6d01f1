"""What happened when, and how long it took."""

from __future__ import annotations

import numpy as np
import pytest

from dledger.kernels.history import column
from dledger.kernels.kernel import whole_partial
from dledger.kernels.rates import OUTCOMES, SLOT_NS, RateKernel, acknowledged_slots, percentile_ms
from tests.unit.kernels.histories import append, batches_of, failed, unknown

MS = 1_000_000
HISTORY = [
    append(1, 0, (0, 5 * MS), index=0, count=10),
    append(1, 10, (0, 6 * MS), index=10, count=5),
    unknown(1, 15, (0, SLOT_NS)),
    failed(1, 16, (0, SLOT_NS)),
    append(1, 17, (0, 3 * SLOT_NS), index=15),
]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_calls_and_records_are_counted_however_the_history_is_cut(size: int) -> None:
    merged = whole_partial(RateKernel(), batches_of(HISTORY, size))
    calls, outcome = column(merged, "calls"), column(merged, "outcome")
    assert [int(calls[outcome == number].sum()) for number in range(len(OUTCOMES))] == [3, 1, 1]
    assert int(column(merged, "records").sum()) == 18
    assert acknowledged_slots(merged).tolist() == [0, 3]


def test_a_percentile_is_within_a_class_of_the_true_one() -> None:
    latencies_ms = np.arange(1, 1001)
    classes = np.floor(np.log2(latencies_ms * MS) * 8).astype(np.int64)
    found = percentile_ms(classes, np.ones(1000, dtype=np.int64), 0.99)
    assert found == pytest.approx(990, rel=0.05)


def test_of_nothing_the_percentile_is_nothing() -> None:
    assert percentile_ms(np.array([], dtype=np.int64), np.array([], dtype=np.int64), 0.5) == 0
