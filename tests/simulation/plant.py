"""Planted bugs: each a patch under ``mutants/``, applied to a copy of the package, which the simulator must find.

A patch begins with two lines of its own::

    class: 7 commit arithmetic
    bug: commits a position of an older term by counting

A mutant that no seed betrays is a hole in the watch, or in the trouble it makes. A bug is planted by hand in a clean
tree and recorded, which takes it out again; patches that the code has moved away from are made to fit::

    python -m tests.simulation.plant record NAME --bug-class "7 commit arithmetic" --bug "commits …"
    python -m tests.simulation.plant refresh
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.simulation.run import BROKEN
from tests.support.sources import ROOT

MUTANTS = Path(__file__).parent / "mutants"
CANARIES = ("vote-before-persist", "minority-commits", "own-ack-before-sync", "no-truncate", "read-without-a-round")
"""Found within a few seeds: if they are not, the simulator sees nothing any more."""
STORE = " of the store"
"""Classes of bugs that end so are looked for in the seeds of the store."""
_COPIED = ("dledger", "tests/simulation", "tests/support")
_SIMULATION = "python -m tests.simulation"


class Mutant(NamedTuple):
    """One planted bug."""

    name: str
    bug_class: str
    bug: str
    patch: Path

    @property
    def flags(self) -> tuple[str, ...]:
        """Of the simulation that is to find it."""
        return ("--store",) if self.bug_class.endswith(STORE) else ()


class Verdict(NamedTuple):
    """``invariant`` caught it, in the seed ``seeds``; empty: nothing did, in so many."""

    mutant: Mutant
    invariant: str
    seeds: int

    @property
    def summary(self) -> dict[str, str | int]:
        """What is to be kept of it."""
        name, bug_class, *_ = self.mutant
        return {"name": name, "class": bug_class, "invariant": self.invariant, "seed": self.seeds}

    def __str__(self) -> str:
        outcome = f"caught by {self.invariant!r} in seed {self.seeds}" if self.invariant else "MISSED"
        return f"{self.mutant.name:34s} {self.mutant.bug_class:44s} {outcome}"


def mutants(*names: str) -> list[Mutant]:
    """Those of these names, or all of them. Raises LookupError for a name that none has."""
    known = {patch.stem: patch for patch in sorted(MUTANTS.glob("*.patch"))}
    if unknown := sorted(set(names) - known.keys()):
        raise LookupError(f"there is no planted bug {', '.join(unknown)}; there are: {', '.join(known)}")
    return [_read(known[name]) for name in dict.fromkeys(names or known)]


def _read(patch: Path) -> Mutant:
    first, second, *_ = patch.read_text().splitlines()
    return Mutant(patch.stem, first.removeprefix("class: "), second.removeprefix("bug: "), patch)


@contextmanager
def planted(mutant: Mutant) -> Iterator[Path]:
    """A copy of the package, and of the simulation, with the bug in it. Raises RuntimeError when it does not fit."""
    with _copy() as copy:
        done = _run(["git", "apply", "-p1", str(mutant.patch)], copy)
        if done.returncode:
            raise RuntimeError(
                f"{mutant.patch.name} does not apply any more: {done.stderr.strip()}; see {_SIMULATION}.plant"
            )
        yield copy


@contextmanager
def _copy() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dledger-mutant-") as name:
        copy = Path(name)
        for part in _COPIED:
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "mutants"))
        (copy / "tests" / "__init__.py").touch()
        yield copy


def _run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(directory), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


# The hunt ------------------------------------------------------------------------------------------------------------


def hunt(mutant: Mutant, max_seeds: int) -> Verdict:
    """Runs seeds against the mutant until one fails."""
    with planted(mutant) as copy:
        done = _run(
            [sys.executable, "-m", "tests.simulation", *mutant.flags, "--until-failure", f"0:{max_seeds}"], copy
        )
    word, _, rest = done.stdout.strip().rpartition("\n")[2].partition(" ")
    if word == "clean":
        return Verdict(mutant, "", max_seeds)
    if word != "failed" or BROKEN in rest:
        raise RuntimeError(f"{mutant.name}: the simulation itself broke\n{done.stdout}{done.stderr}")
    seed, _, invariant = rest.partition(" ")
    return Verdict(mutant, invariant, int(seed))


# Making patches ------------------------------------------------------------------------------------------------------


def _write(name: str, bug_class: str, bug: str, diff: str) -> None:
    kept = [line for line in diff.splitlines() if not line.startswith(("diff --git", "index "))]
    (MUTANTS / f"{name}.patch").write_text("\n".join([f"class: {bug_class}", f"bug: {bug}", "", *kept]) + "\n")


def record(name: str, bug_class: str, bug: str) -> None:
    """Takes what was changed in dledger/ since the last commit for the bug, and takes it back."""
    diff = subprocess.run(["git", "diff", "--", "dledger"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    if not diff:
        raise SystemExit("nothing was changed in dledger/: plant the bug first")
    _write(name, bug_class, bug, diff)
    subprocess.run(["git", "apply", "-R"], cwd=ROOT, input=diff, text=True, check=True)


def refresh() -> int:
    """Makes the patches fit the code that moved, where it is clear how; names those where it is not."""
    stale = 0
    for mutant in mutants():
        with _copy() as copy:
            for command in (["git", "init", "-q"], ["git", "add", "dledger"]):
                _run(command, copy)
            done = _run(["patch", "-p1", "--fuzz=3", "--no-backup-if-mismatch", "-i", str(mutant.patch)], copy)
            if done.returncode:
                stale += 1
                print(f"{mutant.name}: plant it anew\n{done.stdout}", file=sys.stderr)
            else:
                _write(mutant.name, mutant.bug_class, mutant.bug, _run(["git", "diff", "--", "dledger"], copy).stdout)
    return 1 if stale else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog=f"{_SIMULATION}.plant", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("name")
    recording.add_argument("--bug-class", required=True)
    recording.add_argument("--bug", required=True)
    commands.add_parser("refresh")
    options = parser.parse_args()
    if options.command == "refresh":
        return refresh()
    record(options.name, options.bug_class, options.bug)
    return 0


if __name__ == "__main__":
    sys.exit(main())
