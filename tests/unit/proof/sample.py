"""Slices and results to test with."""

from __future__ import annotations

from datetime import date
from typing import Any

from tests.proof.history import History
from tests.proof.registry import Slice
from tests.proof.report import Report
from tests.proof.results import Result
from tests.support.sources import tree

SEEDS = Slice("simulation", ("tests.simulation", "--seeds", "0:1"), r"(?P<passed>\d+) passed, (?P<failed>\d+) failed")
MORE = SEEDS._replace(arguments=("tests.simulation", "--seeds", "1:2"))
MUTANT = Slice("mutants", ("tests.simulation", "--mutants", "x"), r"(?P<caught>\d+) caught")
ROT = Slice("corruption", ("tests.corruption",), r"(?P<damages>\d+) damages")
MORE_ROT = ROT._replace(arguments=("tests.corruption", "--part", "1"))
DAY = "2026-11-27"
TODAY = date(2026, 11, 28)
LONG_AGO = "2026-10-01"
SOURCES = {"dledger/some.py": "ab" * 20}
HERE = tree(SOURCES)


def result(
    outcome: str, each: Slice = SEEDS, details: dict[str, Any] | None = None, *, day: str = DAY, **counts: int
) -> Result:
    """Of this tree."""
    return Result(
        family=each.family,
        slice=each.name,
        tree=HERE,
        outcome=outcome,
        counts=counts,
        when=f"{day}T12:00:00Z",
        duration_s=60.0,
        commit="abc",
        is_dirty=False,
        processor="some processor",
        python="3.11.2",
        details=details or {},
    )


def elsewhere(
    outcome: str, each: Slice = SEEDS, *, day: str = DAY, commit: str = "abc", tree: str = "another", passed: int = 1
) -> Result:
    """Of another tree than this one."""
    return result(outcome, each, day=day, passed=passed)._replace(tree=tree, commit=commit)


def history(slices: list[Slice], *results: Result) -> History:
    return History(slices, {each.name: SOURCES for each in slices}, results, TODAY)


def report(slices: list[Slice], *results: Result) -> Report:
    """Since every other tree one path has changed."""
    return Report(history(slices, *results), lambda _family, _result: ["dledger/some.py"])
