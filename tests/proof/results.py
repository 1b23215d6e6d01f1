"""Results, a JSON line each, kept for as long as what they rest on stays as it is; and the table of them."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.proof.registry import Slice
from tests.support.fingerprint import ROOT

FULL = ROOT / "docs" / "proof" / "results.jsonl"
"""Is committed: whoever reads the log's code reads what was proved of it."""
QUICK = ROOT / ".proof" / "quick.jsonl"
FAILURES = ROOT / ".proof" / "failures"
"""Where what a failed slice said is kept."""


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


def commit() -> str:
    """The commit that is checked out."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


class Results:
    """In one file. What is added is on the disk at once; of several of one slice the last counts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._results = {result.slice: result for result in self._read()}

    def of(self, each: Slice) -> Result | None:
        """None also where what is known is of other sources."""
        result = self._results.get(each.name)
        return result if result is not None and result.sources == each.sources else None

    def add(self, result: Result) -> None:
        self._results[result.slice] = result
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result._asdict()) + "\n")

    def compact(self) -> None:
        """Rewrites the file with a line a slice, and without what an interrupted run has left half-written."""
        lines = (json.dumps(result._asdict()) + "\n" for result in self._results.values())
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".partial")
        partial.write_text("".join(lines), encoding="utf-8")
        partial.replace(self._file)

    def _read(self) -> list[Result]:
        if not self._file.exists():
            return []
        lines = self._file.read_text(encoding="utf-8").splitlines(keepends=True)
        return [Result(**json.loads(line)) for line in lines if line.endswith("\n")]  # the last may be torn


def table(slices: Sequence[Slice], results: Results) -> list[str]:
    """A line for each family."""
    lines = [f"{'family':22s}{'slices':>12s}{'skipped':>9s}{'failed':>8s}{'minutes':>9s}  counted"]
    for family in dict.fromkeys(each.family for each in slices):
        mine = [each for each in slices if each.family == family]
        done = [result for each in mine if (result := results.of(each)) is not None]
        counts: Counter[str] = Counter()
        for result in done:
            counts.update(result.counts)
        outcomes = Counter(result.outcome for result in done)
        minutes = sum(result.duration_s for result in done) / 60
        said = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in counts.items())
        progress = f"{outcomes['held']} of {len(mine)}"
        lines.append(
            f"{family:22s}{progress:>12s}{outcomes['skipped']:>9d}{outcomes['failed']:>8d}{minutes:>9.1f}  {said}"
        )
    return lines
