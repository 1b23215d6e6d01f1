"""Frames as record batches: the same records, however they lie in memory."""

from __future__ import annotations

import pytest

from dledger.client.results import Batch
from dledger.common.batch import build_body
from dledger.spark.columns import TARGET_BYTES, arrow_schema, record_batches

COLUMNS = ("index", "term", "value", "sequence")


def frames_of(records: list[list[bytes]], askew: int) -> list[Batch]:
    """One frame a list; their bodies begin ``askew`` bytes behind where one would like to have them."""
    frames, base_index = [], 0
    for number, each in enumerate(records):
        body = memoryview(bytes(askew) + build_body(each))[askew:]
        frames.append(Batch(base_index, len(each), 1 + number, 7, body, base_sequence=100 + base_index))
        base_index += len(each)
    return frames


def rows_of(records: list[list[bytes]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for number, each in enumerate(records):
        for record in each:
            rows.append({"index": len(rows), "term": 1 + number, "value": record, "sequence": 100 + len(rows)})
    return rows


@pytest.mark.parametrize("askew", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    "records",
    [
        [[b"a", b"", b"ccc"]],
        [[b""]],
        [[b"a"], [b""], [b"", b"bb"], [b"x" * 1_000]],
        [[b"x" * TARGET_BYTES], [b"y"], [b"z" * TARGET_BYTES, b""], [b"end"]],
    ],
)
def test_every_record_is_there_once_wherever_frames_lie(records: list[list[bytes]], askew: int) -> None:
    rows = rows_of(records)
    batches = list(record_batches(frames_of(records, askew), COLUMNS, "default", start=0, end=len(rows)))
    assert [row for batch in batches for row in batch.to_pylist()] == rows
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(COLUMNS)


def test_what_lies_beyond_the_range_is_left_out() -> None:
    records = [[b"%d" % number for number in range(10)], [b"%d" % number for number in range(10, 20)]]
    batches = record_batches(frames_of(records, 1), ("value",), "default", start=3, end=17)
    values = [value for batch in batches for value in batch.column(0).to_pylist()]
    assert values == [b"%d" % number for number in range(3, 17)]
