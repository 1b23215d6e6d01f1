"""How a range becomes splits, and filters a range: no cluster, no session."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from dledger.spark.filters import Bounds, narrow
from dledger.spark.origin import Span
from dledger.spark.plan import SPLIT_BYTES, Split, plan_splits

MIB = 1 << 20
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def segments(*sizes_bytes: int) -> list[Span]:
    """A thousand records each."""
    return [Span(1000 * at, 1000 * (at + 1), size_bytes, 0) for at, size_bytes in enumerate(sizes_bytes)]


def cuts(splits: list[Split]) -> list[int]:
    """Where one ends and the next begins; every split covers its part without a gap."""
    assert all(one.end == two.start for one, two in pairwise(splits))
    return [split.start for split in splits] + [splits[-1].end] if splits else []


def test_a_large_segment_is_a_split_of_its_own() -> None:
    assert cuts(plan_splits(0, 3000, segments(SPLIT_BYTES, SPLIT_BYTES, SPLIT_BYTES), 0)) == [0, 1000, 2000, 3000]


def test_small_segments_share_a_split() -> None:
    assert cuts(plan_splits(0, 4000, segments(*[SPLIT_BYTES // 2] * 4), 0)) == [0, 2000, 4000]


def test_a_range_within_one_segment_is_one_split() -> None:
    assert cuts(plan_splits(1200, 1300, segments(MIB, MIB, MIB), 0)) == [1200, 1300]


def test_the_largest_are_halved_until_there_are_enough() -> None:
    assert cuts(plan_splits(0, 2000, segments(SPLIT_BYTES, SPLIT_BYTES // 4), 3)) == [0, 500, 1000, 2000]


def test_there_are_no_more_splits_than_records() -> None:
    assert cuts(plan_splits(10, 13, segments(MIB), 8)) == [10, 11, 12, 13]


def test_what_was_appended_since_the_segments_were_listed_is_covered() -> None:
    assert cuts(plan_splits(900, 1100, segments(MIB), 0)) == [900, 1100]


def test_an_empty_range_has_no_split() -> None:
    assert plan_splits(5, 5, segments(MIB), 4) == []


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([], Bounds()),
        ([EqualTo(("index",), 7)], Bounds(7, 8)),
        ([GreaterThan(("index",), 7), LessThanOrEqual(("index",), 9)], Bounds(8, 10)),
        ([GreaterThanOrEqual(("index",), 7), LessThan(("index",), 9)], Bounds(7, 9)),
        ([GreaterThanOrEqual(("timestamp",), NOON)], Bounds(first_ms=NOON_MS)),
        ([LessThan(("timestamp",), NOON)], Bounds(end_ms=NOON_MS)),
        ([EqualTo(("timestamp",), NOON)], Bounds(first_ms=NOON_MS, end_ms=NOON_MS + 1)),
        ([EqualTo(("value",), b"x"), EqualTo(("term",), 3)], Bounds()),
    ],
)
def test_filters_on_index_and_timestamp_narrow_the_range(filters: list[Filter], bounds: Bounds) -> None:
    assert narrow(filters) == bounds
