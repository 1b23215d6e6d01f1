"""Times are read and written in ISO 8601, and in UTC unless an offset is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dledger.common.times import format_ms, iso_ms, ms_of


@pytest.mark.parametrize("timestamp_ms", [0, 999, 1795219200000, 1795219200123])
def test_what_is_written_is_read(timestamp_ms: int) -> None:
    assert iso_ms(format_ms(timestamp_ms)) == timestamp_ms


@pytest.mark.parametrize(
    "text", ["", "20261121", "2026-11-21T", "2026-11-21T20", "2026-W47", "2026-02-30", "٢٠٢٦-11-21"]
)
def test_nothing_else_is_a_time(text: str) -> None:
    assert iso_ms(text) is None


def test_a_time_that_no_calendar_has_is_told_in_milliseconds() -> None:
    assert format_ms(1 << 62) == f"{1 << 62}ms"


def test_a_fraction_of_a_millisecond_counts_as_a_whole_one() -> None:
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    assert ms_of(moment) == 1795219200000
    assert ms_of(moment + timedelta(microseconds=1)) == iso_ms("2026-11-21T00:00:00.000001") == 1795219200001
    assert ms_of(moment - timedelta(microseconds=1)) == 1795219200000
    assert ms_of(moment.astimezone(timezone(timedelta(hours=5)))) == 1795219200000
    assert ms_of(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)) == -1000
