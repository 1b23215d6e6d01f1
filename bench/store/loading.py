"""A load that goes on beside what is measured, and what it told of each window."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean
from typing import Any

from bench.processes import Child
from bench.store.checkpoints import Span
from bench.store.cluster import StoreCluster
from bench.work import MeasurementFailed

WINDOW_WITHIN_S = 60.0
"""A window is told every quarter of a second; a put may take its whole time limit."""

REFUSED_WINDOWS = 40


@dataclass(frozen=True, slots=True)
class Window:
    """Puts that were answered from ``began_s`` to ``ended_s``, by the machine's clock."""

    began_s: float
    ended_s: float
    puts: int
    errors: int
    revision: int


class Loading:
    """``next`` waits for the next window."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.windows: list[Window] = []

    def next(self) -> Window:
        """Raises MeasurementFailed when the load has ended, or nothing but refusals came of it for long."""
        said = heard(self._child, "window", WINDOW_WITHIN_S)
        self.windows.append(Window(**{name: said[name] for name in Window.__slots__}))
        last = self.windows[-REFUSED_WINDOWS:]
        if len(last) == REFUSED_WINDOWS and all(each.errors and not each.puts for each in last):
            raise MeasurementFailed(f"the store refuses every put (see {self._child.log})")
        return self.windows[-1]

    @property
    def puts(self) -> int:
        return sum(each.puts for each in self.windows)

    def revision_at(self, at_s: float) -> int:
        """As of the last window that had ended by then."""
        return max((each.revision for each in self.windows if each.ended_s <= at_s), default=self.windows[0].revision)


def heard(child: Child, event: str, timeout_s: float) -> dict[str, Any]:
    """The next thing that it says. Raises MeasurementFailed when it has ended."""
    said: dict[str, Any] = json.loads(child.hear(timeout_s))
    assert said["event"] == event, said
    return said


@contextmanager
def loading(running: StoreCluster, *arguments: object) -> Iterator[Loading]:
    """``arguments``: of client.py's ``load``."""
    child = running.work("load", *arguments)
    try:
        yield Loading(child)
    finally:
        child.end()


def share_during(span: Span, windows: Sequence[Window], others: Sequence[Span]) -> float | None:
    """The rate of puts within ``span`` over that just before and behind it, for as long; None where a side is missing.
    Windows in which another span was under way count for nothing."""
    length_s = span.ended_s - span.began_s
    within = [each for each in windows if each.began_s >= span.began_s and each.ended_s <= span.ended_s]
    around = [
        each
        for each in windows
        if each.began_s >= span.began_s - length_s and each.ended_s <= span.ended_s + length_s
        if not any(each.began_s < other.ended_s and each.ended_s > other.began_s for other in others)
    ]
    return rate(within) / rate(around) if within and rate(around) else None


def rate(windows: Sequence[Window]) -> float:
    """Puts a second."""
    return mean(each.puts / (each.ended_s - each.began_s) for each in windows) if windows else 0.0
