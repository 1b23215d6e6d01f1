"""What was proved is kept while its sources stay, and what was not is not called so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.__main__ import _prove, _verdict
from tests.proof.registry import Slice, counted, full, quick
from tests.proof.results import Result, Results, table
from tests.support.fingerprint import ROOT

SEEDS = Slice("simulation", ("tests.simulation", "--seeds", "0:1"), r"(?P<passed>\d+) passed, (?P<failed>\d+) failed")


def test_the_last_count_counts() -> None:
    assert counted(SEEDS, "1 passed, 0 failed\n12 passed, 3 failed\n") == {"passed": 12, "failed": 3}
    assert counted(SEEDS, "it broke") is None


def test_no_two_slices_are_taken_for_each_other() -> None:
    for slices in (full(), quick()):
        assert len({each.name for each in slices}) == len(slices)


def result(outcome: str, each: Slice = SEEDS, **counts: int) -> Result:
    return Result(each.name, each.sources, outcome, counts, 60.0, "abc")


def test_results_outlive_the_run_and_a_torn_line(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    Results(file).add(result("held", passed=2))
    with file.open("a") as opened:
        opened.write('{"slice": "x", "outc')
    assert Results(file).of(SEEDS) == result("held", passed=2)
    Results(file).compact()
    assert Results(file).of(SEEDS) == result("held", passed=2)
    assert file.read_text().endswith("}\n")


def test_what_was_proved_of_other_sources_is_not_proved(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add(result("held")._replace(sources="others"))
    assert results.of(SEEDS) is None


def test_a_planted_bug_is_another_source() -> None:
    patch = ROOT / "tests" / "simulation" / "mutants" / "minority-commits.patch"
    assert SEEDS._replace(patch=patch).sources != SEEDS.sources


def test_the_table_adds_up_a_family(tmp_path: Path) -> None:
    more = SEEDS._replace(arguments=("tests.simulation", "--seeds", "1:2"))
    results = Results(tmp_path / "results.jsonl")
    results.add(result("held", passed=1000))
    results.add(result("failed", more, passed=500, failed=1))
    [line] = table([SEEDS, more], results)[1:]
    assert line.split()[:8] == ["simulation", "1", "of", "2", "0", "1", "2.0", "1,500"]


@pytest.mark.parametrize(("outcome", "code"), [("held", 0), ("skipped", 0), ("failed", 1), ("", 1)])
def test_only_what_was_run_and_did_not_fail_is_proved(tmp_path: Path, outcome: str, code: int) -> None:
    results = Results(tmp_path / "results.jsonl")
    if outcome:
        results.add(result(outcome))
    assert _verdict([SEEDS], results) == code


@pytest.mark.parametrize(
    ("program", "outcome"),
    [("print('3 passed, 0 failed')", "held"), ("print('nothing')", "failed"), ("raise SystemExit(1)", "failed")],
)
def test_a_slice_holds_when_it_ends_well_and_says_what_it_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, outcome: str
) -> None:
    (tmp_path / "some_proof.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(Slice, "sources", "of that program")
    proved, _ = _prove(SEEDS._replace(arguments=("some_proof",)))
    assert proved.outcome == outcome
