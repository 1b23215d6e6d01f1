"""A command that takes its seeds from the commit says which they are, and how to try the same on another commit."""

from __future__ import annotations

import sys

import pytest

from tests.fuzz import __main__ as fuzz
from tests.simulation import __main__ as simulation
from tests.support import revision
from tests.support.revision import FIXED_SEEDS

FIRST = FIXED_SEEDS + 10


@pytest.fixture(autouse=True)
def commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revision, "commit", lambda: "00000a27a84f")


def test_the_simulation_runs_so_many_seeds_of_the_commit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def many(_kind: object, seeds: range, *_: object) -> int:
        ran.append(seeds)
        return 0

    monkeypatch.setattr(simulation, "_many", many)
    monkeypatch.setattr(sys, "argv", ["simulation", "--of-commit", "20"])
    assert simulation.main() == 0
    assert ran == [range(FIRST, FIRST + 20)]
    again = f"python -m tests.simulation --seeds {FIRST}:{FIRST + 20}"
    assert capsys.readouterr().out == f"20 seeds from the hash of commit 00000a27a84f; again: {again}\n"


@pytest.mark.parametrize("target", ["", " --target decoders"])
def test_the_fuzzers_take_the_seed_of_the_commit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    planned = []

    def plan(count: int, seed: int, only: str | None = None) -> list[fuzz.Slice]:
        planned.append((count, seed, only))
        return []

    monkeypatch.setattr(fuzz, "plan", plan)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--count", "5", "--of-commit", *target.split()])
    assert fuzz.main() == 0
    assert planned == [(5, FIRST, target.rpartition(" ")[2] or None)]
    again = f"python -m tests.fuzz --count 5 --seed {FIRST}{target}"
    assert capsys.readouterr().out.splitlines()[0] == f"seed from the hash of commit 00000a27a84f; again: {again}"
