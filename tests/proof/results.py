"""Results of slices: a line of JSON each, in one file a month. They are added up, and none is ever taken away.

A change of the sources makes a result one of another tree. Two branches that both added results merge by keeping the
lines of both (``.gitattributes``), so the lines of a file are in no order."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.sources import ROOT

FULL = ROOT / "proofs"
"""Is committed: whoever reads the log's code reads what was proved of it."""
QUICK = ROOT / ".proof" / "quick"
FAILURES = ROOT / ".proof" / "failures"
"""Where what a failed slice said is kept."""
OUTCOMES = ("held", "failed", "skipped")
UNKNOWN = "unknown"
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class DamagedResults(Exception):
    """A file is not what was written. What it says is not to be believed, and not to be written over."""


class Result(NamedTuple):
    """What became of one run of a slice."""

    family: str
    slice: str
    """Its name."""
    tree: str
    """The id of the git tree of all that it rests on, committed or not."""
    outcome: str
    """held, failed, or skipped: this machine cannot do it."""
    counts: dict[str, int]
    when: str
    """Its end: ISO 8601, in UTC, to the second."""
    duration_s: float
    commit: str
    """The commit that was checked out. ``UNKNOWN`` where git could not say."""
    is_dirty: bool
    """What it rests on was not, or may not have been, as in ``commit``."""
    processor: str
    python: str
    details: dict[str, Any]
    """What the report shows of it beside the counts, in the words of its command's summary."""

    @property
    def day(self) -> str:
        return self.when[:10]

    @property
    def month(self) -> str:
        return self.when[:7]

    @property
    def origin(self) -> str:
        """Day and commit, for a reader."""
        return f"{self.day}, {self.commit}{' and uncommitted changes' if self.is_dirty else ''}"


def now() -> str:
    """The time, as ``Result.when`` has it."""
    return datetime.now(UTC).strftime(_TIME)


def line_of(result: Result) -> str:
    return json.dumps(result._asdict(), separators=(",", ":")) + "\n"


def parsed(line: str, month: str) -> Result | None:
    """The result that a line of the month's file holds. None if it holds none, or one of another month."""
    try:
        result = Result(**json.loads(line))
        is_whole = _is_whole(result) and result.month == month
    except (ValueError, TypeError):
        return None
    return result if is_whole else None


def _is_whole(result: Result) -> bool:
    """Raises ValueError or TypeError where a part is of another kind altogether."""
    names = (result.family, result.slice, result.tree, result.commit, result.processor, result.python)
    return (
        all(isinstance(name, str) and name for name in names)
        and result.outcome in OUTCOMES
        and all(type(count) is int for count in dict(result.counts).values())
        and datetime.strptime(result.when, _TIME).replace(tzinfo=UTC).strftime(_TIME) == result.when
        and result.duration_s >= 0
        and isinstance(result.is_dirty, bool)
        and isinstance(result.details, dict)
    )


class Results:
    """The results in a directory. A result that is added is on the disk at once, whole or not at all.

    Raises DamagedResults."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all = [result for file in sorted(directory.glob("*.jsonl")) for result in _read(file)]

    @property
    def all(self) -> list[Result]:
        """The longest ago first."""
        return sorted(self._all, key=lambda result: result.when)

    def add(self, result: Result) -> None:
        file = self.file_of(result)
        file.parent.mkdir(parents=True, exist_ok=True)
        with _alone(self._directory):
            before = [line_of(each) for each in _read(file)]
            _replace(file, "".join([*before, line_of(result)]))
        self._all.append(result)

    def file_of(self, result: Result) -> Path:
        return self._directory / f"{result.month}.jsonl"


def _read(file: Path) -> list[Result]:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    return [_believed(file, number, line) for number, line in enumerate(lines, 1)]


def _believed(file: Path, number: int, line: str) -> Result:
    result = parsed(line, file.stem)
    if result is None:
        raise DamagedResults(
            f"line {number} of {file} is no result of that month: restore the file with git, or delete the line"
        )
    return result


def _replace(file: Path, content: str) -> None:
    partial = file.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    partial.replace(file)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """No other run adds a result meanwhile."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
