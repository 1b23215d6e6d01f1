"""Filters on index and timestamp, as the range of records they can hold for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil, floor

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from dledger.spark.origin import Origin, Span, index_at


@dataclass(frozen=True, slots=True)
class Bounds:
    """Nothing outside can pass the filters; what lies inside may."""

    first_index: int = 0
    end_index: int = (1 << 63) - 1
    first_ms: int = 0
    end_ms: int | None = None

    def clip(self, start: int, end: int, origin: Origin, segments: Sequence[Span]) -> tuple[int, int]:
        """What is left of a range of records."""
        start, end = max(start, self.first_index), min(end, self.end_index)
        if self.first_ms and start < end:
            start = index_at(origin, self.first_ms, (start, end), segments)
        if self.end_ms is not None and start < end:
            end = index_at(origin, self.end_ms, (start, end), segments)
        return start, max(start, end)


def narrow(filters: Iterable[Filter]) -> Bounds:
    """The bounds that all of them leave; a filter on anything else leaves everything."""
    first_index, end_index, first_ms = 0, (1 << 63) - 1, 0
    end_ms: int | None = None
    for each in filters:
        column = getattr(each, "attribute", None)
        value = getattr(each, "value", None)
        if column == ("index",) and isinstance(value, int):
            low, high = _range(each, value, value)
            first_index, end_index = max(first_index, low), min(end_index, high)
        elif column == ("timestamp",) and isinstance(value, datetime):
            exact_ms = value.timestamp() * 1000
            low, high = _range(each, floor(exact_ms), ceil(exact_ms))
            first_ms = max(first_ms, low)
            if high < 1 << 62:
                end_ms = high if end_ms is None else min(end_ms, high)
    return Bounds(first_index, end_index, first_ms, end_ms)


def _range(each: Filter, floor_value: int, ceil_value: int) -> tuple[int, int]:
    """From … to (exclusive) that ``each`` leaves."""
    unbounded = (1 << 63) - 1
    if isinstance(each, EqualTo | EqualNullSafe):
        return floor_value, ceil_value + 1
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return floor_value + (isinstance(each, GreaterThan) and floor_value == ceil_value), unbounded
    if isinstance(each, LessThan | LessThanOrEqual):
        return 0, ceil_value + isinstance(each, LessThanOrEqual)
    return 0, unbounded
