"""Results, a JSON line each, kept for as long as what they rest on stays as it is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
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
    """That was checked out, to look up what it was."""
    details: dict[str, Any]
    """What the report shows of it beside the counts, in the words of its command's summary."""


def commit() -> str:
    """The commit that is checked out; where git does not say, ``unknown``: a result is one without it, too."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return "unknown"


class Results:
    """In one file. What is added is on the disk at once; of several of one slice the last counts.

    Raises DamagedResults."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._results = {result.slice: result for result in self._read()}

    def of(self, each: Slice) -> Result | None:
        """None also where what is known is of other sources. What is kept as held counts by what was counted: more may
        be asked for by now."""
        result = self.of_any_sources(each)
        if result is None or result.sources != each.sources:
            return None
        fell_short = result.outcome == "held" and not each.holds(result.counts)
        return result._replace(outcome="failed") if fell_short else result

    def of_any_sources(self, each: Slice) -> Result | None:
        """Is not proved of the code as it is."""
        return self._results.get(each.name)

    def add(self, result: Result) -> None:
        self._results[result.slice] = result
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(_line(result))

    def compact(self, slices: Iterable[Slice]) -> None:
        """Rewrites the file with a line for each of ``slices``, all there are: without what an interrupted run has left
        half-written, and what nobody runs any more."""
        names = {each.name for each in slices}
        self._results = {name: result for name, result in self._results.items() if name in names}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".partial")
        partial.write_text("".join(map(_line, self._results.values())), encoding="utf-8")
        partial.replace(self._file)

    def _read(self) -> list[Result]:
        if not self._file.exists():
            return []
        lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]  # the last may be torn
        return [self._parse(number, line) for number, line in enumerate(whole, 1)]

    def _parse(self, number: int, line: str) -> Result:
        try:
            result = Result(**{"details": {}, **json.loads(line)})
        except (ValueError, TypeError):
            result = None
        if result is None or result.outcome not in OUTCOMES:
            raise DamagedResults(f"line {number} of {self._file} is no result: take it from the repository again")
        return result


def _line(result: Result) -> str:
    return json.dumps(result._asdict(), separators=(",", ":")) + "\n"
