"""Results, a JSON line each, kept for the commit that they are of; and the table of them."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.proof.registry import Slice

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".proof"


class Result(NamedTuple):
    """What became of one slice."""

    slice: str
    """Its name."""
    outcome: str
    """held, failed, or skipped: this machine cannot do it."""
    counts: dict[str, int]
    duration_s: float


def commit() -> str:
    """The commit that is checked out; with what was changed since told apart."""
    changed = _git("diff", "HEAD") + _git("ls-files", "--others", "--exclude-standard")
    name = _git("rev-parse", "--short=12", "HEAD").strip()
    return f"{name}+{hashlib.sha256(changed.encode()).hexdigest()[:8]}" if changed else name


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


class Results:
    """Of one commit. What is added is on the disk at once; of several of one slice the last counts."""

    def __init__(self, folder: Path, commit_name: str) -> None:
        self._file = folder / f"{commit_name}.jsonl"
        self.failures = folder / commit_name
        """Where what a failed slice said is kept."""
        self._results = {result.slice: result for result in self._read()}

    def of(self, each: Slice) -> Result | None:
        return self._results.get(each.name)

    def add(self, result: Result) -> None:
        self._results[result.slice] = result
        self._file.parent.mkdir(exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result._asdict()) + "\n")

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
