"""What nobody runs, rots: the gate runs what the README and the Makefile offer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STANDS_FOR = {
    "proof": "proof-quick",
    "bench-all": "bench-gate",
    "spark-kills": "test-spark",
    "proto": "check",
    "etcd": "test-etcd",
}
"""Targets that the gate does not run, and the one that does a part of the same: tests/spark kills a pipeline twice,
``make check`` writes the stubs, and tests/etcd has a cut of the random operations."""


def targets(text: str) -> set[str]:
    return set(re.findall(r"(?<![-\w])make ([a-z]+(?:-[a-z]+)*)(?=[\s`,;:]|$)", text))


def offered() -> set[str]:
    """What README.md tells of, and the Makefile at its beginning."""
    code = re.findall(r"```.*?```|`[^`]*`", (ROOT / "README.md").read_text(), re.DOTALL)
    makefile, _, _ = (ROOT / "Makefile").read_text().partition("\nPYTHON ?=")
    return targets("\n".join([*code, makefile]))


def run_by_the_gate() -> set[str]:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    return targets("\n".join(line.partition("#")[0] for line in lines if line.strip().startswith("make ")))


def test_targets_are_found_in_readme_and_makefile() -> None:
    assert offered() >= {"demo", "test", "demo-spark", "proof-report", "test-docker", "liveness"}


@pytest.mark.parametrize("target", sorted(offered()))
def test_the_gate_runs_every_target_that_is_offered(target: str) -> None:
    assert STANDS_FOR.get(target, target) in run_by_the_gate()


@pytest.mark.parametrize("target", sorted(run_by_the_gate()))
def test_every_target_that_the_gate_runs_is_there(target: str) -> None:
    assert re.search(rf"^(?:.* )?{target}(?: .*)?:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_a_stand_in_is_no_target_that_the_gate_runs_by_itself() -> None:
    assert not STANDS_FOR.keys() & run_by_the_gate()
