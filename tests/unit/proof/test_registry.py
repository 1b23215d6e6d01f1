"""What is to be proved, and what each proof rests on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.registry import OWN_PROCESS, QUICK_SEEDS, UNITS, counted, full, places, quick
from tests.simulation.plant import mutants
from tests.support.imports import imported
from tests.support.sources import ROOT
from tests.unit.proof.sample import SEEDS

FIRST_SEED = 123_456


def test_the_last_count_counts() -> None:
    assert counted(SEEDS, "1 passed, 0 failed\n12 passed, 3 failed\n") == {"passed": 12, "failed": 3}
    assert counted(SEEDS, "it broke") is None


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        ("15 passed in 3.21s", {"passed": 15, "skipped": 0}),
        ("13 passed, 2 skipped in 438.00s (0:07:18)", {"passed": 13, "skipped": 2}),
        ("15 skipped in 0.10s", {"passed": 0, "skipped": 15}),
    ],
)
def test_what_pytest_skipped_is_counted(said: str, counts: dict[str, int]) -> None:
    [of_pytest] = [each for each in full() if each.family == "real-faults"]
    assert counted(of_pytest, said) == counts


def test_no_two_slices_are_taken_for_each_other() -> None:
    for slices in (full(), quick(FIRST_SEED)):
        assert len({each.name for each in slices}) == len(slices)


@pytest.mark.parametrize("package", sorted({each.package for each in full()}))
def test_a_proof_rests_on_all_that_it_imports(package: str) -> None:
    known = {*places(package)}
    assert not [file for file in imported((ROOT / package).rglob("*.py")) if not {file, *file.parents} & known]


@pytest.mark.parametrize("package", sorted({each.package for each in full()} - {*OWN_PROCESS}))
def test_a_proof_that_starts_programs_rests_on_all_of_the_product(package: str) -> None:
    assert ROOT / "dledger" in places(package)


def test_the_simulation_rests_on_what_decides_and_stores_and_on_no_client() -> None:
    names = {str(file.relative_to(ROOT)) for file in places("tests/simulation")}
    assert {"dledger/raft/raft_node.py", "dledger/log/file_log.py", "dledger/group/replica.py"} <= names
    assert {"dledger/__init__.py", "tests/simulation/troubles/disks.py", "tests/support/pool.py"} <= names
    assert not [name for name in names if name.startswith("dledger/client/")]


def test_a_seed_loads_nothing_that_the_simulation_does_not_rest_on() -> None:
    """Nor by a name that is put together while it runs, which no reading finds."""
    program = """if True:
        import sys
        from tests.simulation.run import run_seed
        assert not run_seed(0).failure
        print(*(module.__file__ for module in [*sys.modules.values()] if getattr(module, "__file__", None)), sep="\\n")
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    files = {Path(line) for line in done.stdout.splitlines()}
    ours = {file for file in files if {ROOT / "dledger", ROOT / "tests"} & {*file.parents}}
    assert ROOT / "dledger" / "raft" / "raft_node.py" in ours
    assert ours <= {*places("tests/simulation")}


def test_a_planted_bug_is_another_source_and_so_is_another_one() -> None:
    one, other = (SEEDS._replace(patch=each.patch).tree for each in mutants("minority-commits", "no-truncate"))
    assert len({SEEDS.tree, one, other}) == 3


def test_what_judges_real_faults_is_a_part_of_their_proof() -> None:
    assert ROOT / "dledger" / "kernels" / "checks.py" in places("tests/root")


def test_families_can_be_typed() -> None:
    assert all(re.fullmatch(r"[a-z0-9-]+", each.family) for each in full())


def test_each_family_says_what_it_counts() -> None:
    assert {each.family for each in full()} == {*UNITS}


def test_the_quick_cut_tries_seeds_from_the_first_on_and_leaves_planted_bugs_theirs() -> None:
    ours, others = ({each.name for each in quick(first)} for first in (FIRST_SEED, FIRST_SEED + 1))
    assert f"simulation --seeds {FIRST_SEED}:{FIRST_SEED + QUICK_SEEDS}" in ours
    assert {name.split()[0] for name in ours - others} == {"simulation", "fuzz", "power"}
    assert {name for name in ours if "--mutants" in name} <= others


def test_the_long_proofs_keep_their_seeds() -> None:
    assert {"simulation --seeds 0:500", "simulation --seeds 19500:20000"} <= {each.name for each in full()}


def test_a_slice_says_how_it_is_run_by_itself() -> None:
    assert SEEDS.command == "python -m tests.simulation --seeds 0:1"
