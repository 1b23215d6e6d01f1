"""Places in a log, named by index, from an end or by time; and the index of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import NamedTuple

TimestampOf = Callable[[int], Awaitable[int]]
"""The timestamp in ms of the record with an index."""

LATEST = "latest"
"""The end of the log: only records that come later lie behind it."""


class Kind(Enum):
    """The ways of naming a place."""

    INDEX = ""
    AFTER_START = "+"
    BEFORE_END = "-"
    TIME = "@"
    AGO = "@-"


class Place(NamedTuple):
    """A place in the log, as it was written."""

    kind: Kind
    value: int

    @property
    def is_named(self) -> bool:
        """Whether a reader counts on the very record: it named the record's index."""
        return self.kind is Kind.INDEX

    def at(self, now_ms: int) -> Place:
        """How long ago, as a time."""
        return Place(Kind.TIME, max(0, now_ms - self.value)) if self.kind is Kind.AGO else self


THE_END = Place(Kind.BEFORE_END, 0)
"""The place called ``latest``."""


class Bounds(NamedTuple):
    """The first record that is left and one past the last committed one."""

    first: int
    end: int


async def index_of(place: Place, bounds: Bounds, timestamp_of: TimestampOf, *, base: int | None = None) -> int:
    """The index of ``place`` in a log with ``bounds``: one inside of them, unless the place was named by its index.
    AFTER_START counts from ``base``, by default the first index."""
    if place.kind is Kind.INDEX:
        return place.value
    if place.kind is Kind.AFTER_START:
        return min((bounds.first if base is None else base) + place.value, bounds.end)
    if place.kind is Kind.BEFORE_END:
        return max(bounds.end - place.value, bounds.first)
    assert place.kind is Kind.TIME, "how long ago is a time by now"
    return await first_at_or_after(place.value, bounds, timestamp_of)


async def first_at_or_after(timestamp_ms: int, bounds: Bounds, timestamp_of: TimestampOf) -> int:
    """The first record of that time or later, one past the last if there is none. By bisection: the log's timestamps
    never run backwards."""
    low, high = bounds
    while low < high:
        middle = (low + high) // 2
        if await timestamp_of(middle) < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low
