"""What was proved is kept for its commit, and what was not is not called so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.__main__ import _prove, _verdict
from tests.proof.registry import Slice, counted, full, quick
from tests.proof.results import Result, Results, table

SEEDS = Slice("simulation", ("tests.simulation", "--seeds", "0:1"), r"(?P<passed>\d+) passed, (?P<failed>\d+) failed")


def test_the_last_count_counts() -> None:
    assert counted(SEEDS, "1 passed, 0 failed\n12 passed, 3 failed\n") == {"passed": 12, "failed": 3}
    assert counted(SEEDS, "it broke") is None


def test_no_two_slices_are_taken_for_each_other() -> None:
    for slices in (full(), quick()):
        assert len({each.name for each in slices}) == len(slices)


def test_results_outlive_the_run_and_a_torn_line(tmp_path: Path) -> None:
    Results(tmp_path, "abc").add(Result(SEEDS.name, "held", {"passed": 2}, 1.5))
    with (tmp_path / "abc.jsonl").open("a") as file:
        file.write('{"slice": "x", "outc')
    assert Results(tmp_path, "abc").of(SEEDS) == Result(SEEDS.name, "held", {"passed": 2}, 1.5)
    assert Results(tmp_path, "def").of(SEEDS) is None


def test_the_table_adds_up_a_family(tmp_path: Path) -> None:
    more = SEEDS._replace(arguments=("tests.simulation", "--seeds", "1:2"))
    results = Results(tmp_path, "abc")
    results.add(Result(SEEDS.name, "held", {"passed": 1000}, 60))
    results.add(Result(more.name, "failed", {"passed": 500, "failed": 1}, 60))
    [line] = table([SEEDS, more], results)[1:]
    assert line.split()[:8] == ["simulation", "1", "of", "2", "0", "1", "2.0", "1,500"]


@pytest.mark.parametrize(("outcome", "code"), [("held", 0), ("skipped", 0), ("failed", 1), ("", 1)])
def test_only_what_was_run_and_did_not_fail_is_proved(tmp_path: Path, outcome: str, code: int) -> None:
    results = Results(tmp_path, "abc")
    if outcome:
        results.add(Result(SEEDS.name, outcome, {}, 1))
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
    result, _ = _prove(SEEDS._replace(arguments=("some_proof",)))
    assert result.outcome == outcome
