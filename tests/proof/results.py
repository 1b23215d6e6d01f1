"""Results of slices, one JSON line each. A change of the sources makes a result an earlier one; it never removes it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.proof.registry import Slice
from tests.support.fingerprint import ROOT

FULL = ROOT / "docs" / "proof" / "results.jsonl"
"""Is committed: whoever reads the log's code reads what was proved of it."""
QUICK = ROOT / ".proof" / "quick.jsonl"
FAILURES = ROOT / ".proof" / "failures"
"""Where what a failed slice said is kept."""


OUTCOMES = ("held", "failed", "skipped")


class DamagedResults(Exception):
    """The file is not what was written. What it says is not to be believed, and not to be written over."""


class Result(NamedTuple):
    """What became of one slice."""

    slice: str
    """Its name."""
    sources: str
    """The fingerprint of what it rests on."""
    outcome: str
    """held, failed, or skipped: this machine cannot do it."""
    counts: dict[str, int]
    duration_s: float
    commit: str
    """The commit that was checked out."""
    day: str
    """The day of the run, ISO 8601, in UTC. Empty if nobody knows it."""
    details: dict[str, Any]
    """What the report shows of it beside the counts, in the words of its command's summary."""

    @property
    def when(self) -> str:
        """Day and commit, for a reader."""
        return f"{self.day or 'unknown day'}, {self.commit}"


class Known(NamedTuple):
    """What is known of one slice that was run at least once."""

    newest: Result
    """The last run, of whatever sources. It is failed, too, if it counted less than is asked for now."""
    held: Result | None
    """The last run that held and counted what is asked for now. It never stands in for ``newest``."""
    as_it_is: bool
    """``newest`` is of the present sources."""


def commit() -> str:
    """The commit that is checked out, or ``unknown`` if git cannot say. A result counts without it."""
    return _git("rev-parse", "--short=12", "HEAD") or "unknown"


def commits_since(earlier: str) -> int | None:
    """The number of commits from ``earlier`` to the one that is checked out. None if git does not know ``earlier``."""
    count = _git("rev-list", "--count", f"{earlier}..HEAD", "--")
    return None if count is None else int(count)


def _git(*arguments: str) -> str | None:
    """What git printed. None if it failed, or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def today() -> str:
    return datetime.now(UTC).date().isoformat()


class Results:
    """The results in one file. A result that is added is on the disk at once.

    For each slice two results are kept: the newest, and the newest that held. Of two lines the later one is newer.
    Raises DamagedResults."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._newest: dict[str, Result] = {}
        """By name of the slice, in the order of the runs."""
        self._held: dict[str, Result] = {}
        for result in self._read():
            self._take(result)

    def known(self, each: Slice) -> Known | None:
        """None if the slice was never run."""
        newest = self._newest.get(each.name)
        if newest is None:
            return None
        as_it_is = newest.sources == each.sources
        if newest.outcome == "held" and not each.holds(newest.counts):
            newest = newest._replace(outcome="failed")
        held = self._held.get(each.name)
        return Known(newest, held if held is not None and each.holds(held.counts) else None, as_it_is)

    def pending(self, slices: Sequence[Slice]) -> list[Slice]:
        """What does not hold of the present sources, in the order in which to run it.

        First what was never run. Then what was last run of other sources, the longest ago first. Last what was run of
        the present sources and did not hold."""
        turns = {name: turn for turn, name in enumerate(self._newest)}
        never, earlier, again = list[Slice](), list[tuple[str, int, Slice]](), list[Slice]()
        for each in slices:
            known = self.known(each)
            if known is None:
                never.append(each)
            elif not known.as_it_is:
                earlier.append((known.newest.day, turns[each.name], each))
            elif known.newest.outcome != "held":
                again.append(each)
        return [*never, *(each for *_, each in sorted(earlier, key=lambda one: one[:2])), *again]

    def add(self, result: Result) -> None:
        self._take(result)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(_line(result))

    def compact(self, slices: Iterable[Slice]) -> None:
        """Rewrites the file with what is kept of ``slices``, which are all there are.

        It drops results that newer ones have replaced, a line that an interrupted run left half-written, and slices
        that no longer exist."""
        names = {each.name for each in slices}
        self._newest = {name: result for name, result in self._newest.items() if name in names}
        self._held = {name: result for name, result in self._held.items() if name in names}
        older = [result for name, result in self._held.items() if result is not self._newest[name]]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".partial")
        partial.write_text("".join(map(_line, [*older, *self._newest.values()])), encoding="utf-8")
        partial.replace(self._file)

    def _take(self, result: Result) -> None:
        self._newest.pop(result.slice, None)  # what was run again is the last in the order
        self._newest[result.slice] = result
        if result.outcome == "held":
            self._held[result.slice] = result

    def _read(self) -> list[Result]:
        if not self._file.exists():
            return []
        lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]  # the last may be torn
        return [self._parse(number, line) for number, line in enumerate(whole, 1)]

    def _parse(self, number: int, line: str) -> Result:
        try:
            result = Result(**{"day": "", "details": {}, **json.loads(line)})
            is_whole = result.outcome in OUTCOMES and _is_day(result.day)
        except (ValueError, TypeError):
            is_whole = False
        if not is_whole:
            raise DamagedResults(f"line {number} of {self._file} is no result: take it from the repository again")
        return result


def _is_day(text: str) -> bool:
    """Raises ValueError or TypeError if it is no date at all."""
    return not text or date.fromisoformat(text).isoformat() == text


def _line(result: Result) -> str:
    return json.dumps(result._asdict(), separators=(",", ":")) + "\n"
