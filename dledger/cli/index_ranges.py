"""Which records: ``7``, ``0:100``, ``-10:``, ``:50``, ``+5``, ``-10``, ``@t1:t2``.

A range is ``START:END`` as in Python, the end not included; either may be left out. A place is

* ``7``       the record of that index;
* ``+5``      five behind the first record that is left; as an end, five behind the start of the range;
* ``-10``     ten before the end;
* ``@t``      the first record at or after a time: milliseconds since the epoch, or a date like 2026-11-21 (UTC);
* ``latest``  the last record, as ``-1``.

A number alone is one record; ``+5``, ``-10`` and ``@t`` alone reach to the end. What lies outside the log is left out,
as in Python, except a start behind the log's end or below its beginning when it was named by its index: then the
caller counts on records that are not there, and is told so. A range that is written backwards is refused.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from dledger.cli.units import number_up_to
from dledger.common.errors import Code, ConfigError, error, quoted
from dledger.common.types import MAX_INDEX

TimestampOf = Callable[[int], Awaitable[int]]
"""The timestamp in ms of the record with an index."""

_PLACE = re.compile(r"(?P<kind>[+@-]?)(?P<text>[0-9][0-9-]*)")
HELP = "write 7, 0:100, -10:, :50, +5, -10, latest or @TIME"
LATEST = "latest"


class Kind(Enum):
    """What a place is counted from."""

    INDEX = ""
    AFTER_START = "+"
    BEFORE_END = "-"
    TIME = "@"


class Place(NamedTuple):
    """A place in the log, as it was written."""

    kind: Kind
    value: int


class Range(NamedTuple):
    """START:END as it was written; ``None`` where it was left out. ``single`` for one index alone."""

    start: Place | None
    end: Place | None
    single: bool = False


class Bounds(NamedTuple):
    """The first record that is left and one past the last committed one."""

    first: int
    end: int


def parse_place(text: str) -> Place:
    """Raises CONFIG_ERROR."""
    if text == LATEST:
        return Place(Kind.BEFORE_END, 1)
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ConfigError(f"{quoted(text)} is not a place in the log: {HELP}")
    kind, digits = Kind(match["kind"]), match["text"]
    if kind is Kind.TIME and "-" in digits:
        return Place(kind, _date_ms(digits))
    if not digits.isdigit():
        raise ConfigError(f"{quoted(text)} is not a place in the log: {HELP}")
    value = number_up_to(MAX_INDEX, digits)
    if value is None:
        last = f"is beyond {MAX_INDEX}, the last index that there can be"
        raise ConfigError(f"{quoted(text)} {last}: leave the END of a range out to reach the log's")
    return Place(kind, value)


def parse_range(text: str) -> Range:
    """Raises CONFIG_ERROR."""
    start, colon, end = text.partition(":")
    if not colon:
        place = parse_place(start)
        return Range(place, None, single=place.kind is Kind.INDEX)
    # Behind a colon, @t1:t2 needs no second @.
    if end and start.startswith("@") and end[0] not in "@+-":
        end = f"@{end}"
    wanted = Range(parse_place(start) if start else None, parse_place(end) if end else None)
    if _is_backwards(wanted):
        raise ConfigError(f"{quoted(text)} ends before it begins: write the smaller one first, {end}:{start}")
    return wanted


def _is_backwards(wanted: Range) -> bool:
    """As far as both ends are counted from the same place; for others it takes the log."""
    start, end = wanted.start, wanted.end
    if start is None or end is None or start.kind is not end.kind or start.kind is Kind.AFTER_START:
        return False
    return start.value < end.value if start.kind is Kind.BEFORE_END else end.value < start.value


async def resolve(wanted: Range, bounds: Bounds, timestamp_of: TimestampOf) -> tuple[int, int]:
    """The indexes [start, end) that are meant in a log with ``bounds``.

    Raises INDEX_OUT_OF_RANGE or INDEX_LESS_THAN_LOCAL_BEGIN for a start by index that the log has not.
    """
    if wanted.start is None:
        start = bounds.first
    else:
        start = await _index(wanted.start, bounds.first, bounds, timestamp_of)
        if wanted.start.kind is Kind.INDEX:
            _check_start(start, bounds, single=wanted.single)
    if wanted.single:
        return start, start + 1
    end = bounds.end if wanted.end is None else await _index(wanted.end, start, bounds, timestamp_of)
    start = max(start, bounds.first)
    return start, max(start, min(end, bounds.end))


async def _index(place: Place, base: int, bounds: Bounds, timestamp_of: TimestampOf) -> int:
    if place.kind is Kind.INDEX:
        return place.value
    if place.kind is Kind.AFTER_START:
        return min(base + place.value, bounds.end)
    if place.kind is Kind.BEFORE_END:
        return max(bounds.end - place.value, bounds.first)
    return await first_at_or_after(place.value, bounds, timestamp_of)


def _check_start(start: int, bounds: Bounds, *, single: bool) -> None:
    held = f"the log holds {bounds.first} to {bounds.end - 1}" if bounds.end > bounds.first else "the log is empty"
    if start < bounds.first:
        raise error(Code.INDEX_LESS_THAN_LOCAL_BEGIN, f"record {start} was trimmed: {held}", first_index=bounds.first)
    if start > bounds.end or (single and start == bounds.end):
        raise error(Code.INDEX_OUT_OF_RANGE, f"there is no record {start} yet: {held}", commit_index=bounds.end - 1)


async def first_at_or_after(timestamp_ms: int, bounds: Bounds, timestamp_of: TimestampOf) -> int:
    """By bisection: the log's timestamps never run backwards."""
    low, high = bounds
    while low < high:
        middle = (low + high) // 2
        if await timestamp_of(middle) < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _date_ms(text: str) -> int:
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        raise ConfigError(f"{quoted(text)} is not a date: write 2026-11-21, or milliseconds since the epoch") from None
