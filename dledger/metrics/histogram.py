"""A histogram that costs a bisection to feed: counts a bucket, and a sum."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

DURATION_BOUNDS_S = (*(round(m * 10.0**e, 7) for e in range(-5, 1) for m in (1, 2.5, 5)), 10.0)
"""10 µs … 10 s, three buckets a decade."""


class Histogram:
    """Counts observations in buckets; ``bounds`` are their upper ends, in ascending order, and +Inf comes behind them.

    Fed on the event loop, read by the scraper's thread: a scrape may miss the observation under way, never more.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = DURATION_BOUNDS_S) -> None:
        assert list(bounds) == sorted(set(bounds)), bounds
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Counts one ``value``: in seconds, unless the bounds say otherwise."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, int]]:
        """(upper bound, observations at or below it), as Prometheus writes them."""
        names = (*map(repr, self.bounds), "+Inf")
        return list(zip(names, accumulate(self.counts), strict=True))
