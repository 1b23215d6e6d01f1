"""Planted bugs: each a patch under ``mutants/``, applied to a copy of the package, which the simulator must find.

A patch begins with two lines of its own::

    class: 7 commit arithmetic
    bug: commits a position of an older term by counting

A mutant that no seed betrays is a hole in the watch, or in the trouble it makes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MUTANTS = Path(__file__).parent / "mutants"
_COPIED = ("dledger", "tests/simulation", "tests/support")


class Mutant(NamedTuple):
    """One planted bug."""

    name: str
    bug_class: str
    bug: str
    patch: Path


class Verdict(NamedTuple):
    """``invariant`` caught it, in the ``seeds``-th seed; empty: nothing did."""

    mutant: Mutant
    invariant: str
    seeds: int

    def __str__(self) -> str:
        outcome = f"caught by {self.invariant!r} in seed {self.seeds}" if self.invariant else "MISSED"
        return f"{self.mutant.name:32s} {self.mutant.bug_class:40s} {outcome}"


def mutants(only: str = "") -> list[Mutant]:
    """All of them, by name, or those whose name contains ``only``."""
    return [_read(patch) for patch in sorted(MUTANTS.glob("*.patch")) if only in patch.stem]


def _read(patch: Path) -> Mutant:
    first, second, *_ = patch.read_text().splitlines()
    return Mutant(patch.stem, first.removeprefix("class: "), second.removeprefix("bug: "), patch)


def hunt(mutant: Mutant, max_seeds: int) -> Verdict:
    """Runs seeds against the mutant until one fails. Raises RuntimeError when the patch does not apply any more."""
    with tempfile.TemporaryDirectory(prefix="dledger-mutant-") as copy:
        for part in _COPIED:
            shutil.copytree(ROOT / part, Path(copy, part), ignore=shutil.ignore_patterns("__pycache__", "mutants"))
        Path(copy, "tests", "__init__.py").touch()
        _apply(mutant, copy)
        command = [sys.executable, "-m", "tests.simulation", "--until-failure", f"0:{max_seeds}"]
        done = subprocess.run(command, cwd=copy, env={"PYTHONPATH": copy}, capture_output=True, text=True, check=False)
    word, _, rest = done.stdout.strip().rpartition("\n")[2].partition(" ")
    if word == "clean":
        return Verdict(mutant, "", max_seeds)
    if word != "failed":
        raise RuntimeError(f"{mutant.name}: the simulation itself broke\n{done.stdout}{done.stderr}")
    seed, _, invariant = rest.partition(" ")
    return Verdict(mutant, invariant, int(seed))


def _apply(mutant: Mutant, directory: str) -> None:
    command = ["git", "apply", "-p1", str(mutant.patch)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{mutant.patch.name} does not apply any more: {done.stderr.strip()}")
