"""Slices and results to test with."""

from __future__ import annotations

from typing import Any

from tests.proof.registry import Slice
from tests.proof.results import Result, Results

SEEDS = Slice("simulation", ("tests.simulation", "--seeds", "0:1"), r"(?P<passed>\d+) passed, (?P<failed>\d+) failed")
MORE = SEEDS._replace(arguments=("tests.simulation", "--seeds", "1:2"))
MUTANT = Slice("mutants", ("tests.simulation", "--mutants", "x"), r"(?P<caught>\d+) caught")
ROT = Slice("corruption", ("tests.corruption",), r"(?P<damages>\d+) damages")
MORE_ROT = ROT._replace(arguments=("tests.corruption", "--part", "1"))
DAY = "2026-11-27"


def result(outcome: str, each: Slice = SEEDS, details: dict[str, Any] | None = None, **counts: int) -> Result:
    """Of the present sources."""
    return Result(each.name, each.sources, outcome, counts, 60.0, "abc", DAY, details or {})


def earlier(outcome: str, each: Slice = SEEDS, *, day: str = DAY, commit: str = "abc") -> Result:
    """Of other sources than the present ones."""
    return result(outcome, each, passed=1)._replace(sources="others", day=day, commit=commit)


def newest(results: Results, each: Slice) -> Result | None:
    known = results.known(each)
    return known and known.newest
