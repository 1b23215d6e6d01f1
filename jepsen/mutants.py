"""``python -m jepsen mutants``: planted bugs, each in a copy of the package, under the nemesis that should betray it.

A bug counts as caught when the run on its copy is not valid; that the same run on the package itself is valid is what
the suite shows.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dledger.common.errors import ConfigError
from jepsen.analysis import VIOLATIONS
from jepsen.plan import Plan
from jepsen.run import Run

ROOT = Path(__file__).parents[1]
PATCHES = ROOT / "tests" / "simulation" / "mutants"

BASE = Plan("set", (), clients=0, time_limit_s=0, on_s=2, off_s=2, settle_s=20, call_timeout_ms=3_000)


class Hunt(NamedTuple):
    """How a planted bug is hunted."""

    mutant: str
    workload: str
    nemesis: str
    time_limit_s: float = 14.0
    clients: int = 10
    rate_per_s: float = 0.0
    """With many clients at a rate, something always waits behind the sync that is under way."""


HUNTS = (
    Hunt("one-ack-from-each-disk", "set", "partition-leader"),
    Hunt("uncommitted-reads", "log", "partition-leader"),
    Hunt("duplicates-appended", "set", "kill-leader", 20),
    Hunt("minority-commits", "set", "partition-leader-in-minority", 20),
    Hunt("vote-ignores-length", "set", "laggards", 20),
    Hunt("read-without-a-round", "log", "pause-leader", 20),
    Hunt("follower-commits-unmatched", "local-reads", "partition-leader-in-minority", 20),
    Hunt("index-drifts", "set", "kill-leader"),
    Hunt("sync-error-retried", "set", "fsync-errors"),
    Hunt("any-log-gets-the-vote", "set", "laggards", 30),
    Hunt("vote-ignores-term-of-log", "set", "laggards", 30),
    Hunt("one-answer-confirms-a-round", "log", "pause-leader", 20),
    Hunt("no-truncate", "set", "partition-leader-in-minority"),
    Hunt("full-disk-for-ever", "set", "full-disk", 20),
    Hunt("ack-before-sync", "set", "power-cut-slow-disks", 14, 60, 60),
    Hunt("completion-covers-later-writes", "set", "power-cut-slow-disks", 14, 60, 60),
    Hunt("old-acks-count", "set", "partition-leader-in-minority", 20),
    Hunt("members-not-taken-back", "membership", "partition-leader", 20),
)


class Verdict(NamedTuple):
    """What became of a hunt; ``signs`` are the violations, empty when the bug went unseen, or could not be planted."""

    hunt: Hunt
    signs: tuple[str, ...]
    problem: str = ""

    def __str__(self) -> str:
        how = self.problem or (f"caught: {', '.join(self.signs)}" if self.signs else "MISSED")
        return f"{self.hunt.mutant:32s} {self.hunt.workload} under {self.hunt.nemesis}: {how}"


def hunts(only: Iterable[str]) -> list[Hunt]:
    """All, or those named. Raises CONFIG_ERROR for one that is not known."""
    named = set(only)
    unknown = named - {hunt.mutant for hunt in HUNTS}
    if unknown:
        raise ConfigError(f"no hunt is known for {min(unknown)!r}: choose of {', '.join(h.mutant for h in HUNTS)}")
    return [hunt for hunt in HUNTS if not named or hunt.mutant in named]


def hunt_down(hunt: Hunt, store: Path, run: Callable[[Any], dict[str, Any]]) -> Verdict:
    """One run on a patched copy."""
    plan = replace(
        BASE,
        workload=hunt.workload,
        nemeses=(hunt.nemesis,),
        time_limit_s=hunt.time_limit_s,
        clients=hunt.clients,
        rate_per_s=hunt.rate_per_s,
    )
    with tempfile.TemporaryDirectory(prefix="dledger-mutant-") as copy:
        shutil.copytree(ROOT / "dledger", Path(copy, "dledger"), ignore=shutil.ignore_patterns("__pycache__"))
        patch = PATCHES / f"{hunt.mutant}.patch"
        applied = subprocess.run(
            ["git", "apply", "-p1", str(patch)], cwd=copy, capture_output=True, text=True, check=False
        )
        if applied.returncode:
            return Verdict(hunt, (), f"{patch.name} does not apply any more")
        run_dir = store / f"mutant-{hunt.mutant}"
        shutil.rmtree(run_dir, ignore_errors=True)
        # -P: without the working directory, whose package is not the patched one.
        told = run(Run(plan, run_dir, program=(sys.executable, "-P", "-m", "dledger"), pythonpath=copy).go())
    return Verdict(hunt, tuple(signs_in(told)))


def signs_in(told: dict[str, Any]) -> Iterable[str]:
    """What made a run invalid."""
    if told["valid"]:
        return
    for name, value in told.items():
        if name in VIOLATIONS and value:
            yield f"{name} {value}"
    if told["faults_that_did_not_bite"]:
        yield f"{told['faults_that_did_not_bite'][0]} did not have its effect"
    if not told["acknowledged"] or not told["final_reads"]:
        yield "nothing acknowledged, or no final read"
