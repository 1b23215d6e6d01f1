"""How people write durations and sizes."""

from __future__ import annotations

import click
import pytest

from dledger.cli.units import DURATION_MS, SIZE_BYTES, format_duration, format_size


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("72h", 259_200_000), ("30m", 1_800_000), ("90s", 90_000), ("5ms", 5), ("7d", 604_800_000), ("2w", 1_209_600_000),
     ("0", 0), ("0h", 0)],
)  # fmt: skip
def test_a_duration_is_a_whole_number_and_a_unit(text: str, duration_ms: int) -> None:
    assert DURATION_MS.convert(text, None, None) == duration_ms


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("10GiB", 10 << 30),
        ("512MiB", 512 << 20),
        ("1KiB", 1024),
        ("1kB", 1000),
        ("2TB", 2 * 10**12),
        ("7B", 7),
        ("0", 0),
    ],
)
def test_a_size_is_a_whole_number_and_a_unit(text: str, size_bytes: int) -> None:
    assert SIZE_BYTES.convert(text, None, None) == size_bytes


@pytest.mark.parametrize("unit", ["h", "", "x"])
def test_a_quantity_of_thousands_of_digits_is_refused_in_a_short_sentence(unit: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        DURATION_MS.convert("9" * 5_000 + unit, None, None)
    assert len(refused.value.message) < 500


@pytest.mark.parametrize("text", ["", "72", "h", "1.5h", "-1h", "72 h", "72H", "1h30m", "٣h", "99999999999999999999h"])
def test_a_duration_that_leaves_a_doubt_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        DURATION_MS.convert(text, None, None)


@pytest.mark.parametrize("text", ["", "10", "10G", "10gib", "10 GiB", "1.5GiB", "-1B", "10KB", "9999999999TiB"])
def test_a_size_that_leaves_a_doubt_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        SIZE_BYTES.convert(text, None, None)


@pytest.mark.parametrize("text", ["72h", "30m", "90s", "5ms", "0", "168h"])
def test_a_duration_is_shown_as_it_is_written(text: str) -> None:
    duration_ms = DURATION_MS.convert(text, None, None)
    assert format_duration(duration_ms) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0B"), (1023, "1023B"), (1536, "1.5KiB"), (10 << 30, "10GiB"), (5 << 40, "5TiB")]
)
def test_a_size_is_shown_in_its_largest_unit(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text
