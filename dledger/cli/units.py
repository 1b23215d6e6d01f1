"""Durations and sizes as people write them, parsed strictly: a number without its unit is refused, 0 needs none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from dledger.common.errors import quoted
from dledger.common.types import MAX_INDEX

if TYPE_CHECKING:
    _ParamType = click.ParamType[int]
else:
    _ParamType = click.ParamType  # generic in click's newest versions alone

RECORD_INDEX = click.IntRange(0, MAX_INDEX)
MOST = MAX_INDEX
DURATION_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SIZE_UNITS_BYTES = {
    "B": 1,
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d+)([A-Za-z]*)", re.ASCII)


def number_up_to(most: int, digits: str) -> int | None:
    """What decimal ``digits`` say; None beyond ``most``. However many they are: Python reads some thousands at most."""
    significant = digits.lstrip("0") or "0"
    if len(significant) > len(str(most)):
        return None
    number = int(significant)
    return number if number <= most else None


class Quantity(_ParamType):
    """A whole number and a unit."""

    def __init__(self, name: str, units: dict[str, int], example: str) -> None:
        self.name = name
        self._units = units
        self._example = example

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """In the smallest unit."""
        if isinstance(value, int):
            return value
        found = _QUANTITY.fullmatch(str(value))
        number, unit = (number_up_to(MOST, found[1]), found[2]) if found else (0, "?")
        if number == 0 and not unit:
            return 0
        given = quoted(str(value))
        if unit not in self._units:
            known = ", ".join(self._units)
            self.fail(f"{given} is not a {self.name}: write {self._example}, with one of {known}; or 0.", param, ctx)
        if number is None or number * self._units[unit] > MOST:
            self.fail(f"{given} is beyond what can be counted: use 0 for no limit.", param, ctx)
        return number * self._units[unit]


DURATION_MS = Quantity("duration", DURATION_UNITS_MS, "72h")
SIZE_BYTES = Quantity("size", SIZE_UNITS_BYTES, "10GiB")


def format_duration(duration_ms: int) -> str:
    """The text that ``DURATION_MS`` reads, in the largest exact unit below a week: 72h, 90s."""
    for unit in ("h", "m", "s", "ms"):
        if duration_ms and duration_ms % DURATION_UNITS_MS[unit] == 0:
            return f"{duration_ms // DURATION_UNITS_MS[unit]}{unit}"
    return "0"


def format_about(duration_ms: int) -> str:
    """About how long, for eyes: 3650 days, 90 minutes, 12 seconds."""
    for unit, name in (("d", "days"), ("h", "hours"), ("m", "minutes")):
        if duration_ms >= 2 * DURATION_UNITS_MS[unit]:
            return f"{round(duration_ms / DURATION_UNITS_MS[unit])} {name}"
    return f"{round(duration_ms / DURATION_UNITS_MS['s'])} seconds"


def format_size(size_bytes: int) -> str:
    """About how much, for eyes: 1.5GiB."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes >= SIZE_UNITS_BYTES[unit]:
            return f"{size_bytes / SIZE_UNITS_BYTES[unit]:.1f}{unit}".replace(".0", "")
    return f"{size_bytes}B"
