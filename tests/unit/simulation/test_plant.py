"""The planted bugs fit the code they are planted in, and the simulator sees one."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.plant import CANARIES, Mutant, hunt, mutants

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_every_patch_applies(mutant: Mutant) -> None:
    done = subprocess.run(
        ["git", "apply", "--check", "-p1", str(mutant.patch)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr


def test_every_class_of_bugs_is_planted_several_times() -> None:
    planted_bugs = mutants()
    classes = Counter(int(mutant.bug_class.split()[0]) for mutant in planted_bugs)
    assert len(planted_bugs) >= 40
    assert set(classes) == set(range(1, 19))
    assert min(classes.values()) >= 2


def test_a_bug_is_named_exactly() -> None:
    assert [mutant.name for mutant in mutants("ack-before-sync")] == ["ack-before-sync"]
    with pytest.raises(LookupError, match="no planted bug before-sync"):
        mutants("before-sync")


def test_a_planted_bug_is_found() -> None:
    [canary] = mutants(CANARIES[0])
    verdict = hunt(canary, 1)
    assert verdict.invariant
    assert canary.name in str(verdict)
