"""Which records a range means: Python's slices, and rpk's places."""

from __future__ import annotations

import pytest

from dledger.cli.index_ranges import parse_place, parse_range, resolve
from dledger.common.errors import Code, ConfigError, DLedgerError
from dledger.common.places import THE_END, Bounds, Kind, Place
from dledger.common.types import MAX_INDEX

TEN_TO_NINETEEN = Bounds(first=10, end=20)
NOW_MS = 61_100


async def timestamp_of(index: int) -> int:
    """Two records share every timestamp: 10 and 11 were written at 1000, 12 and 13 at 1100 …"""
    return 1000 + (index - 10) // 2 * 100


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("12", (12, 13)),
        ("12:15", (12, 15)),
        ("-3:", (17, 20)),
        ("-3", (17, 20)),
        ("-1", (19, 20)),
        ("-5:latest", (15, 20)),
        ("12..latest", (12, 20)),
        ("@1100:latest", (12, 20)),
        ("12:12", (12, 12)),
        (":13", (10, 13)),
        (":", (10, 20)),
        ("12:", (12, 20)),
        ("-5:-2", (15, 18)),
        ("+4", (14, 20)),
        ("12:+2", (12, 14)),
        ("@1100:1300", (12, 16)),
        ("@1101", (14, 20)),
        ("@1101:@1200", (14, 14)),
        ("@1100..@1300", (12, 16)),
        ("12..15", (12, 15)),
        ("..13", (10, 13)),
        ("@1970-01-01T00:00:01.1", (12, 20)),
        ("@1970-01-01T00:00:01.100Z..@1970-01-01T01:00:01.300+01:00", (12, 16)),
        ("@1970-01-01T00:00:01.1..1970-01-01T00:00:01.3", (12, 16)),
        ("12..@1970-01-01T00:00:01.3", (12, 16)),
        ("@1970-01-01 00:00:01.1..", (12, 20)),
        ("@-1m", (12, 20)),
        ("@-60s..@-59800ms", (12, 16)),
        ("@-60000ms:@-59800ms", (12, 16)),
        ("@-1d:+2", (10, 12)),
    ],
)
async def test_a_range_means(text: str, span: tuple[int, int]) -> None:
    assert await resolve(parse_range(text), TEN_TO_NINETEEN, timestamp_of, NOW_MS) == span


@pytest.mark.parametrize(
    ("text", "span"), [("12:100", (12, 20)), ("-100:", (10, 20)), (":-100", (10, 10)), ("20:", (20, 20))]
)
async def test_what_lies_outside_is_left_out(text: str, span: tuple[int, int]) -> None:
    assert await resolve(parse_range(text), TEN_TO_NINETEEN, timestamp_of, NOW_MS) == span


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("20", Code.INDEX_OUT_OF_RANGE),
        ("21:30", Code.INDEX_OUT_OF_RANGE),
        ("9", Code.INDEX_LESS_THAN_LOCAL_BEGIN),
        ("9:12", Code.INDEX_LESS_THAN_LOCAL_BEGIN),
    ],
)
async def test_a_start_that_is_counted_on_and_missing_is_refused(text: str, code: Code) -> None:
    with pytest.raises(DLedgerError) as refused:
        await resolve(parse_range(text), TEN_TO_NINETEEN, timestamp_of, NOW_MS)
    assert refused.value.code is code


async def test_an_empty_log_has_an_empty_range() -> None:
    assert await resolve(parse_range("0:100"), Bounds(0, 0), timestamp_of, NOW_MS) == (0, 0)
    assert await resolve(parse_range("-10:"), Bounds(0, 0), timestamp_of, NOW_MS) == (0, 0)


@pytest.mark.parametrize(
    "text",
    ["", "x", "1:x", "1.5", "--3", "@", "@2026-13-01", "@2026-11-21T25:00", "@2026-11-21T20", "1-2", "1...3"],
)
def test_nonsense_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_range(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("10:5", "5:10"), ("-2:-5", "-5:-2"), ("@2026-11-22:2026-11-21", "@2026-11-21:@2026-11-22")]
)
def test_a_range_that_is_written_backwards_is_refused_with_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"ends before it begins: .* {meant}$"):
        parse_range(text)


@pytest.mark.parametrize("text", ["{}", "1:{}", "-{}", "+{}:", "@{}"])
@pytest.mark.parametrize("number", ["9" * 5_000, f"{MAX_INDEX + 1}"])
def test_a_number_beyond_every_log_is_refused_in_a_short_sentence(text: str, number: str) -> None:
    with pytest.raises(ConfigError, match=f"is beyond {MAX_INDEX}") as refused:
        parse_range(text.format(number))
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("text", ["latest", "latest:", "latest..", "latest:100"])
def test_a_range_from_the_end_on_is_refused_with_what_to_write(text: str) -> None:
    """It would be empty, and look like an empty log."""
    with pytest.raises(ConfigError, match="write -1 for the last record, or dledger tail -f --from latest"):
        parse_range(text)


def test_latest_is_the_end_of_the_log() -> None:
    assert parse_place("latest") == THE_END


def test_zeros_in_front_do_not_make_a_number_larger() -> None:
    assert parse_place("0" * 5_000 + f"{MAX_INDEX}") == Place(Kind.INDEX, MAX_INDEX)


def test_a_date_is_midnight_utc_in_ms() -> None:
    assert parse_place("@2026-11-21") == Place(Kind.TIME, 1795219200000)


def test_a_time_of_day_is_in_utc_unless_an_offset_follows() -> None:
    midnight_ms = 1795219200000
    assert parse_place("@2026-11-21T20:15") == Place(Kind.TIME, midnight_ms + (20 * 60 + 15) * 60_000)
    assert parse_place("@2026-11-21T20:15+01:00") == Place(Kind.TIME, midnight_ms + (19 * 60 + 15) * 60_000)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("@1h", "write '@-1h'"),
        ("@-15", "write how long ago with one of ms, s, m, h, d, w, as in @-15m"),
        ("@-15x", "as in @-15m"),
        ("@2026-11-21T20:15:@2026-11-21T20:30", "between two times of day write .."),
        ("@2026-11-21T20:15:2026-11-21T20:30", "between two times of day write .."),
        ("@yesterday", "write @2026-11-21, @2026-11-21T20:15, @-15m, or @ and milliseconds"),
    ],
)
def test_a_time_that_cannot_be_read_is_refused_with_what_to_write(text: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_range(text)
    assert remedy in str(refused.value)
