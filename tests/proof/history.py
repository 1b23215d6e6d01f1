"""What the results say of the sources as they are, of the last 30 days and in all. Decides, and reads no file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import PurePosixPath
from typing import NamedTuple

from tests.proof.registry import UNITS, Slice
from tests.proof.results import Result
from tests.support.sources import tree

WINDOW_DAYS = 30


class Known(NamedTuple):
    """What is known of one slice that was run at least once."""

    newest: Result
    """The last run, of whatever tree. Like the others it is failed, too, if it counted less than is asked for now."""
    here: Result | None
    """The last run of this tree."""
    held: Result | None
    """The last run that held. It never stands in for ``newest``."""
    is_recent: bool
    """``newest`` is of the last 30 days."""

    @property
    def holds_here(self) -> bool:
        return self.here is not None and self.here.outcome == "held"

    @property
    def holds_of_late(self) -> bool:
        return self.is_recent and self.newest.outcome == "held"

    @property
    def failure(self) -> Result | None:
        """A run that no later one has made good: the newest, or the last one of this tree."""
        return next((each for each in (self.newest, self.here) if each and each.outcome == "failed"), None)


class Progress(NamedTuple):
    """How far a family has come. Counts are in its unit, and of runs that held; a slice counts once a tree."""

    aim: int
    unit: str
    slices: int
    here: int
    of_late: int
    in_all: int
    left_here: int
    """So many slices do not hold of this tree."""
    left_of_late: int
    """So many slices hold neither in the last 30 days nor of this tree."""
    failed: int
    skipped: int
    duration_s: float
    """Of all runs."""
    elsewhere: Result | None
    """The last result of another tree."""


class History:
    """Of these slices, with the sources that each rests on now, by its name."""

    def __init__(
        self,
        slices: Sequence[Slice],
        sources: Mapping[str, Mapping[str, str]],
        results: Iterable[Result],
        today: date,
    ) -> None:
        """``results`` are in the order of their ends."""
        self.slices = slices
        self._trees = {each.name: tree(sources[each.name]) for each in slices}
        self._since = (today - timedelta(days=WINDOW_DAYS)).isoformat()
        by_name = {each.name: each for each in slices}
        self._results = [_judged(by_name.get(result.slice), result) for result in results]
        self._turns = {result.slice: turn for turn, result in enumerate(self._results)}
        """Of the newest run of each slice."""
        newest = {(result.slice, result.tree): result for result in self._results}
        self._held_once_a_tree = [result for result in newest.values() if result.outcome == "held"]
        self._known = {each.name: self._learn(each.name) for each in slices if each.name in self._turns}

    def known(self, each: Slice) -> Known | None:
        """None if the slice was never run."""
        return self._known.get(each.name)

    def pending(self) -> list[Slice]:
        """What does not hold of this tree, or failed since, the least proved first.

        First what was never run. Then what was last run of another tree, the longest ago first. Last what was run of
        this tree and did not hold."""
        left = [each for each in self.slices if not _is_done(self.known(each))]
        return sorted(left, key=lambda each: (self._is_tried_here(each), self._turns.get(each.name, -1)))

    def progress(self, family: str) -> Progress:
        slices = [each for each in self.slices if each.family == family]
        known = [known for each in slices if (known := self.known(each)) is not None]
        held = [result for result in self._held_once_a_tree if result.family == family]
        runs = [result for result in self._results if result.family == family]
        elsewhere = [result for result in runs if result.tree != self._trees.get(result.slice)]
        here = sum(each.holds_here for each in known)
        return Progress(
            aim=sum(each.asked for each in slices),
            unit=UNITS[family],
            slices=len(slices),
            here=_counted(each.here for each in known if each.here and each.holds_here),
            of_late=_counted(filter(self._is_of_late, held)),
            in_all=_counted(held),
            left_here=len(slices) - here,
            left_of_late=len(slices) - sum(each.holds_of_late or each.holds_here for each in known),
            failed=sum(each.failure is not None for each in known),
            skipped=sum(each.newest.outcome == "skipped" for each in known),
            duration_s=sum(result.duration_s for result in runs),
            elsewhere=elsewhere[-1] if elsewhere else None,
        )

    def _learn(self, name: str) -> Known:
        runs = [result for result in self._results if result.slice == name]
        here = [result for result in runs if result.tree == self._trees[name]]
        held = [result for result in runs if result.outcome == "held"]
        newest = runs[-1]
        return Known(newest, here[-1] if here else None, held[-1] if held else None, self._is_of_late(newest))

    def _is_of_late(self, result: Result) -> bool:
        return result.day >= self._since

    def _is_tried_here(self, each: Slice) -> bool:
        known = self.known(each)
        return known is not None and known.here is not None


def changed(then: Mapping[str, str], now: Mapping[str, str], is_gone: Callable[[str], bool]) -> list[str]:
    """Paths of ``now`` that ``then`` had with another content, or not at all, and Python files beside them that are
    gone. Both name the blob of each path."""
    folders = {PurePosixPath(path).parent for path in now}
    lost = (path for path in then if path not in now and path.endswith(".py"))
    gone = (path for path in lost if PurePosixPath(path).parent in folders and is_gone(path))
    return sorted([*(path for path, blob in now.items() if then.get(path) != blob), *gone])


def commit_word(last_committed: str | None, today: str) -> str:
    """Whether results that are not committed yet are to be committed now: the repository takes them once a day."""
    if last_committed == today:
        return "Results were committed today already: commit these tomorrow, with those to come."
    return "They are not committed yet: commit them, once a day at most."


def _is_done(known: Known | None) -> bool:
    return known is not None and known.holds_here and known.failure is None


def _judged(each: Slice | None, result: Result) -> Result:
    """Failed, where it counted less than is asked for now."""
    is_too_little = each is not None and result.outcome == "held" and not each.holds(result.counts)
    return result._replace(outcome="failed") if is_too_little else result


def _counted(results: Iterable[Result]) -> int:
    """By the first of the counts, which is the one that is asked for."""
    return sum(next(iter(result.counts.values()), 0) for result in results)
