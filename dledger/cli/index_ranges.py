"""Which records: ``7``, ``0:100``, ``-10:``, ``:50``, ``+5``, ``-10``, ``@t1..@t2``.

A range is ``START:END`` as in Python, the end not included; either may be left out. ``START..END`` means the same, and
is the only form for times of day, which hold colons themselves. A place is

* ``7``       the record of that index;
* ``+5``      five behind the first record that is left; as an end, five behind the start of the range;
* ``-10``     ten before the end;
* ``@t``      the first record at or after a time: 2026-11-21, 2026-11-21T20:15 (UTC, unless an offset like +01:00
              follows), or milliseconds since the epoch;
* ``@-15m``   the same, for the time fifteen minutes ago;
* ``latest``  the end: only records that come later lie behind it.

A number alone is one record; ``+5``, ``-10``, ``@t`` and ``@-15m`` alone reach to the end. What lies outside the log is
left out, as in Python. A start behind the log's end, or below its beginning, is refused when it was named by its index.
The caller counts on missing records then. A range that is written backwards is refused, and so is one that begins at
``latest``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dledger.cli.units import DURATION_UNITS_MS, number_up_to
from dledger.common.errors import Code, ConfigError, error, quoted
from dledger.common.places import LATEST, THE_END, Bounds, Kind, Place, TimestampOf, index_of
from dledger.common.times import EXAMPLE, iso_ms
from dledger.common.types import MAX_INDEX

_PLACE = re.compile(r"(?P<kind>[+@-]?)(?P<digits>[0-9]+)", re.ASCII)
_AGO = re.compile(r"@-(?P<digits>[0-9]+)(?P<unit>[A-Za-z]*)", re.ASCII)
_FORGOT_MINUS = re.compile(r"@[0-9]+[A-Za-z]+", re.ASCII)
_TIME_OF_DAY = re.compile(r"@[^@]*[T ]\d\d:", re.ASCII)
HELP = f"write 7, 0:100, -10:, :50, +5, -10, latest, @2026-11-21, @{EXAMPLE} or @-15m"
RANGE_OF_TIMES = f"between two times of day write .. , as in @{EXAMPLE}..@2026-11-21T20:30"


class Range(NamedTuple):
    """START:END as it was written; ``None`` where it was left out. ``single`` for one index alone."""

    start: Place | None
    end: Place | None
    single: bool = False


def parse_place(text: str) -> Place:
    """Raises CONFIG_ERROR."""
    if text == LATEST:
        return THE_END
    if text.startswith("@"):
        return _parse_time(text)
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ConfigError(f"{quoted(text)} is not a place in the log: {HELP}")
    return Place(Kind(match["kind"]), _number(match["digits"], text))


def _parse_time(text: str) -> Place:
    ago = _AGO.fullmatch(text)
    if ago is not None and ago["unit"] in DURATION_UNITS_MS:
        return Place(Kind.AGO, _number(ago["digits"], text) * DURATION_UNITS_MS[ago["unit"]])
    units = ", ".join(DURATION_UNITS_MS)
    if ago is not None:
        raise ConfigError(f"{quoted(text)} is not a time: write how long ago with one of {units}, as in @-15m")
    if _FORGOT_MINUS.fullmatch(text):
        past = quoted(f"@-{text[1:]}")
        raise ConfigError(f"{quoted(text)} is not a time: for so long ago write {past}, with one of {units}")
    written = text[1:]
    if written.isascii() and written.isdigit():
        return Place(Kind.TIME, _number(written, text))
    timestamp_ms = iso_ms(written)
    if timestamp_ms is None:
        forms = f"write @2026-11-21, @{EXAMPLE}, @-15m, or @ and milliseconds since the epoch"
        raise ConfigError(f"{quoted(text)} is not a time: {forms}; {RANGE_OF_TIMES}")
    return Place(Kind.TIME, max(0, timestamp_ms))


def _number(digits: str, text: str) -> int:
    value = number_up_to(MAX_INDEX, digits)
    if value is None:
        last = f"is beyond {MAX_INDEX}, the last index that there can be"
        raise ConfigError(f"{quoted(text)} {last}: leave the END of a range out to reach the log's")
    return value


def parse_range(text: str) -> Range:
    """Raises CONFIG_ERROR."""
    sign = ".." if ".." in text else ":"
    start, found, end = (text, "", "") if sign == ":" and _TIME_OF_DAY.search(text) else text.partition(sign)
    if not found:
        place = parse_place(start)
        _check_reaches(place)
        return Range(place, None, single=place.is_named)
    # Behind the sign, @t1:t2 needs no second @.
    if end and end != LATEST and start.startswith("@") and end[0] not in "@+-":
        end = f"@{end}"
    wanted = Range(parse_place(start) if start else None, parse_place(end) if end else None)
    if _is_backwards(wanted):
        raise ConfigError(f"{quoted(text)} ends before it begins: write the smaller one first, {end}:{start}")
    _check_reaches(wanted.start)
    return wanted


def _check_reaches(start: Place | None) -> None:
    """Raises CONFIG_ERROR for a range behind which nothing can lie yet."""
    if start == THE_END:
        raise ConfigError(
            f"{LATEST} is the end of the log, and nothing lies behind it yet: write -1 for the last record, or "
            f"dledger tail -f --from {LATEST} for the records that come"
        )


def _is_backwards(wanted: Range) -> bool:
    """As far as both ends are counted from the same place; for others it takes the log."""
    start, end = wanted.start, wanted.end
    if start is None or end is None or start.kind is not end.kind or start.kind is Kind.AFTER_START:
        return False
    return start.value < end.value if start.kind in (Kind.BEFORE_END, Kind.AGO) else end.value < start.value


async def resolve(wanted: Range, bounds: Bounds, timestamp_of: TimestampOf, now_ms: int) -> tuple[int, int]:
    """The indexes [start, end) that are meant at the time ``now_ms`` in a log with ``bounds``.

    Raises INDEX_OUT_OF_RANGE or INDEX_LESS_THAN_LOCAL_BEGIN for a start by index that the log has not.
    """
    if wanted.start is None:
        start = bounds.first
    else:
        start = await index_of(wanted.start.at(now_ms), bounds, timestamp_of)
        if wanted.start.is_named:
            _check_start(start, bounds, single=wanted.single)
    if wanted.single:
        return start, start + 1
    end = bounds.end
    if wanted.end is not None:
        end = await index_of(wanted.end.at(now_ms), bounds, timestamp_of, base=start)
    start = max(start, bounds.first)
    return start, max(start, min(end, bounds.end))


def _check_start(start: int, bounds: Bounds, *, single: bool) -> None:
    held = f"the log holds {bounds.first} to {bounds.end - 1}" if bounds.end > bounds.first else "the log is empty"
    if start < bounds.first:
        raise error(Code.INDEX_LESS_THAN_LOCAL_BEGIN, f"record {start} was trimmed: {held}", first_index=bounds.first)
    if start > bounds.end or (single and start == bounds.end):
        raise error(Code.INDEX_OUT_OF_RANGE, f"there is no record {start} yet: {held}", commit_index=bounds.end - 1)
