"""Cuts the power at every point of a scenario, with every outcome, and starts from each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

from tests.crashes.medium import Depth, Image
from tests.crashes.promises import Promise
from tests.crashes.scenarios import SCENARIOS, Point, Stage, recovery
from tests.support.virtual_time import run_virtual

FOREVER_S = 1e9
MOST_FAILURES = 5
SYNCS = ("fdatasync", "fsync_directory")


@dataclass(slots=True)
class Tally:
    """What was tried."""

    scenario: str
    calls: int = 0
    points: int = 0
    sampled_points: int = 0
    """Of these, with too many pending changes to try all of their subsets."""
    outcomes: int = 0
    """Subsets of pending changes, and torn sectors."""
    starts: int = 0
    """Outcomes that differ, each of which was started from."""
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.calls += other.calls
        self.points += other.points
        self.sampled_points += other.sampled_points
        self.outcomes += other.outcomes
        self.starts += other.starts
        self.failures += other.failures


def explore(name: str, depth: Depth) -> Tally:
    """Everything about one scenario."""
    return run_virtual(_explore(name, SCENARIOS[name], Stage(), depth), limit_s=FOREVER_S)


def explore_recovery(name: str, depth: Depth, *, every: int = 1, most_outcomes: int = 3) -> Tally:
    """Power cuts during the start that follows a power cut in a scenario: at every ``every``-th point of it, with
    ``most_outcomes`` of the outcomes there, nothing and everything among them."""
    return run_virtual(_explore_recovery(name, depth, every, most_outcomes), limit_s=FOREVER_S)


async def _explore_recovery(name: str, depth: Depth, every: int, most_outcomes: int) -> Tally:
    first = Stage()
    await SCENARIOS[name](first)
    total = Tally(f"recovery of {name}")
    seen: set[tuple[Promise, Image]] = set()
    for point in first.points[::every]:
        outcomes = list(dict.fromkeys(point.shot.images(depth, Random(len(seen)))))
        step = max(1, (len(outcomes) - 1) // (most_outcomes - 1))
        for image in (*outcomes[:-1:step], outcomes[-1]):
            if (point.promise, image) not in seen:
                seen.add((point.promise, image))
                again = recovery(point.promise)
                total.add(await _explore(f"{name}, {point}, its recovery", again, Stage(image), depth))
        if len(total.failures) >= MOST_FAILURES:
            break
    return total


def explore_kills(name: str, depth: Depth, *, every: int = 1) -> Tally:
    """The process ends at every ``every``-th point of a scenario, and is started again with the page cache as it was;
    then the power goes, at every point of that start and behind it. It is killed, or what it was syncing fails: then
    its pages look clean, and the disk never has them."""
    return run_virtual(_explore_kills(name, depth, every), limit_s=FOREVER_S)


async def _explore_kills(name: str, depth: Depth, every: int) -> Tally:
    first = Stage(kills=True)
    await SCENARIOS[name](first)
    total = Tally(f"kills in {name}")
    for point in first.points[::every]:
        assert point.platter is not None
        platters = {"killed": point.platter}
        if point.call in SYNCS and not point.is_after:
            platters["failed"] = deepcopy(point.platter)
            platters["failed"].fail_writes()
        for end, platter in platters.items():
            platter.kill()
            again = Stage(platter=platter)
            total.add(await _explore(f"{name}, {end} {point}", recovery(point.promise), again, depth))
        if len(total.failures) >= MOST_FAILURES:
            break
    return total


async def _explore(name: str, scenario: Callable[[Stage], Awaitable[None]], stage: Stage, depth: Depth) -> Tally:
    tally = Tally(name)
    try:
        await scenario(stage)
    except Exception as failure:  # noqa: BLE001 – whatever it is, it is the finding
        tally.failures.append(f"{name}: {type(failure).__name__}: {failure}")
    tally.calls, tally.points = stage.calls, len(stage.points)
    random = Random(0)
    seen: set[int] = set()
    for point in stage.points:
        tally.sampled_points += point.shot.pending > depth.exhaustive_up_to
        for ordinal, image in enumerate(point.shot.images(depth, random)):
            tally.outcomes += 1
            key = hash((point.promise, image))
            if key not in seen:
                seen.add(key)
                tally.starts += 1
                await _start_from(name, point, ordinal, image, tally)
        if len(tally.failures) >= MOST_FAILURES:
            break
    return tally


async def _start_from(name: str, point: Point, ordinal: int, image: Image, tally: Tally) -> None:
    try:
        await point.promise.check(image)
    except Exception as failure:  # noqa: BLE001 – whatever it is, it is the finding
        tally.failures.append(f"{name}: {point}, outcome {ordinal}: {type(failure).__name__}: {failure}")
