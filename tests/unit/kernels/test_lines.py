"""A history as the lines that it was recorded as: the same sums as of its rows."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from dledger.common.errors import ConfigError
from dledger.kernels.kernel import whole_partial
from dledger.kernels.lines import LineKernel, settled
from dledger.kernels.rates import SLOT_NS, RateKernel
from tests.unit.kernels.histories import append, batches_of, failed, unknown

ROWS = [
    append(1, 0, (0, 3 * SLOT_NS), index=0, count=10),
    failed(2, 0, (SLOT_NS, 4 * SLOT_NS)),
    unknown(3, 0, (SLOT_NS, 500 * SLOT_NS), count=3),
    append(1, 10, (4 * SLOT_NS, 5 * SLOT_NS), index=10),
]
UNHEARD = unknown(4, 0, (6 * SLOT_NS, 6 * SLOT_NS), count=2)


def invoked(process: int, ns: int, count: int = 1) -> dict[str, Any]:
    return {"type": "invoke", "process": process, "call": ns, "ns": ns, "value": 0, "count": count}


def completed(kind: str, process: int, invoked_ns: int, ns: int, count: int = 1) -> dict[str, Any]:
    return {**invoked(process, ns, count), "type": kind, "call": invoked_ns, "invoked": invoked_ns}


LINES = [
    json.dumps(event)
    for row in ROWS
    for event in (
        invoked(row.process, row.invoked_ns, row.count),
        completed(row.outcome, row.process, row.invoked_ns, row.completed_ns, row.count),
    )
] + [json.dumps(invoked(4, 6 * SLOT_NS, 2))]


def of(lines: list[str], size: int) -> pa.Table:
    batches = [
        pa.record_batch({"value": pa.array(lines[place : place + size], pa.string())})
        for place in range(0, len(lines), size)
    ]
    return whole_partial(LineKernel(), batches)


def sums(merged: pa.Table) -> list[tuple[int, ...]]:
    return sorted(tuple(row.values()) for row in merged.to_pylist())


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("step", [1, -1])
def test_lines_in_any_order_amount_to_their_rows(size: int, step: int) -> None:
    expected = whole_partial(RateKernel(), batches_of([*ROWS, UNHEARD], 100))
    assert sums(settled(of(LINES[::step], size))) == sums(expected)


def test_of_no_lines_there_are_no_calls() -> None:
    assert settled(of([""], 1)).num_rows == 0


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "is no event of an append"),
        ('{"type":"ok","ns":1,"count":1,"colour":3}', "is no event of an append"),
        ('{"type":"ok","ns":1}', "it has no count"),
        ('{"type":"maybe","ns":1,"count":1,"invoked":0}', "'maybe' is no type"),
        ('{"type":"ok","ns":1,"count":1}', "does not tell when it was invoked"),
    ],
)
def test_what_is_no_line_of_a_history_is_refused(line: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        of([*LINES, line], 100)


def test_a_completion_whose_invocation_is_missing_is_refused() -> None:
    with pytest.raises(ConfigError, match="was completed that was never invoked"):
        settled(of(LINES[1:], 100))
