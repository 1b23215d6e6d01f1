"""What was proved is kept, and what was not is not called so."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.__main__ import _prove, _run, _verdict
from tests.proof.registry import OWN_PROCESS, Slice, counted, full, places, quick
from tests.proof.report import Report
from tests.proof.results import DamagedResults, Result, Results, commit, commits_since
from tests.simulation.branches import BRANCHES, FAULTS, RARE_BRANCHES, RARE_FAULTS, SELDOM_BRANCHES, SELDOM_FAULTS
from tests.simulation.plant import mutants
from tests.support.fingerprint import ROOT
from tests.support.imports import imported
from tests.unit.proof.sample import MORE, MORE_ROT, MUTANT, ROT, SEEDS, newest, result


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
    for slices in (full(), quick()):
        assert len({each.name for each in slices}) == len(slices)


def test_results_outlive_the_run_and_a_torn_line(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    Results(file).add(result("held", passed=2))
    with file.open("a") as opened:
        opened.write('{"slice": "x", "outc')
    assert newest(Results(file), SEEDS) == result("held", passed=2)
    Results(file).compact([SEEDS])
    assert newest(Results(file), SEEDS) == result("held", passed=2)
    assert file.read_text().endswith("}\n")


def test_what_nobody_runs_any_more_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    results = Results(file)
    results.add(result("failed", MORE))
    results.add(result("held", passed=2))
    results.compact([SEEDS])
    assert newest(Results(file), MORE) is None
    assert newest(Results(file), SEEDS) == result("held", passed=2)


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
    one, other = (SEEDS._replace(patch=each.patch).sources for each in mutants("minority-commits", "no-truncate"))
    assert len({SEEDS.sources, one, other}) == 3


@pytest.mark.parametrize("sources", ["as they were", "others"])
def test_only_what_was_proved_of_sources_that_stayed_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sources: str
) -> None:
    """Somebody edits them while a slice runs."""
    edited = tmp_path / "sources"
    edited.write_text("as they were")
    program = f"import pathlib; pathlib.Path({str(edited)!r}).write_text({sources!r}); print('1 passed, 0 failed')"
    (tmp_path / "some_proof.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(Slice, "sources", property(lambda _: edited.read_text()))
    each, results = SEEDS._replace(arguments=("some_proof",)), Results(tmp_path / "results.jsonl")
    assert _run([each], results)
    assert (results.known(each) is not None) == (sources == "as they were")
    assert ("changed while it ran" in capsys.readouterr().err) == (sources == "others")


@pytest.mark.parametrize(
    "counts",
    [{}, {"passed": 2, "failed": 0}, {"passed": 3, "failed": 1}, {"passed": 3, "lost": 1}, {"passed": 3, "skipped": 1}],
)
def test_what_counted_too_little_is_not_proved_though_it_is_said_to_have_held(
    tmp_path: Path, counts: dict[str, int]
) -> None:
    """More may be asked for by now."""
    each, results = SEEDS._replace(asked=3), Results(tmp_path / "results.jsonl")
    results.add(result("held", each, None, **counts))
    report = Report([each], results)
    assert report.shortcomings() == [f"failed: {each.name}"]
    assert report.table()[1].split()[:8] == ["simulation", "1", "0", "0", "–", "–", "0", "1"]


def test_what_counted_too_little_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_proof.py").write_text("print('3 passed, 0 failed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(Slice, "sources", "of that program")
    each, results = SEEDS._replace(arguments=("some_proof",), asked=3), Results(tmp_path / "results.jsonl")
    results.add(result("held", each, None, passed=2))
    assert _run([each], results)
    proved = newest(results, each)
    assert proved is not None
    assert proved.counts["passed"] == 3


def test_seeds_that_failed_are_named(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add(result("failed", details={"failed": [[7, "liveness"], [9, "no duplicates"]]}, passed=1, failed=2))
    [said] = [said for said in Report([SEEDS], results).shortcomings() if said.startswith("failed")]
    assert said == f"failed: {SEEDS.name}; seed 7: liveness; seed 9: no duplicates"


@pytest.mark.parametrize(
    "line", ["no JSON", "[1]", '{"slice": "x"}', '{"outcome": "hled"}', '{"day": "11/27"}', '{"day": 3}', "\xff"]
)
def test_results_that_are_damaged_are_refused_and_left_as_they_are(tmp_path: Path, line: str) -> None:
    file = tmp_path / "results.jsonl"
    Results(file).add(result("held", passed=2))
    whole = file.read_text()
    damaged = json.dumps(json.loads(whole) | json.loads(line)) if line.startswith(('{"outcome', '{"day')) else line
    file.write_text(f"{whole}{damaged}\n{whole}", encoding="latin-1")
    before = file.read_bytes()
    with pytest.raises(DamagedResults, match=r"^line 2 of .*results.jsonl is no result"):
        Results(file)
    assert file.read_bytes() == before


def test_where_git_cannot_say_what_is_checked_out_a_result_is_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit() == "unknown"
    assert commits_since("abc") is None


def test_what_judges_real_faults_is_a_part_of_their_proof() -> None:
    assert ROOT / "dledger" / "kernels" / "checks.py" in places("tests/root")


def test_the_table_adds_up_a_family(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add(result("held", passed=1000))
    results.add(result("failed", MORE, passed=500, failed=1))
    [line] = Report([SEEDS, MORE], results).table()[1:]
    assert line.split()[:11] == ["simulation", "2", "1", "0", "–", "–", "0", "1", "0", "2.0", "1,500"]


@pytest.mark.parametrize(
    ("outcome", "shortcoming"),
    [("held", []), ("skipped", ["skipped, as"]), ("failed", ["failed: "]), ("", ["never run, 1 of 1 slices"])],
)
def test_only_what_was_run_and_held_is_proved(tmp_path: Path, outcome: str, shortcoming: list[str]) -> None:
    results = Results(tmp_path / "results.jsonl")
    if outcome:
        results.add(result(outcome, passed=1))
    report = Report([SEEDS], results)
    assert [said[: len(shortcoming[0])] for said in report.shortcomings()] == shortcoming
    assert _verdict(report, was_run=True) == len(shortcoming)


def shown(tmp_path: Path, *done: Result) -> str:
    results = Results(tmp_path / "results.jsonl")
    for each in done:
        results.add(each)
    return "\n".join(Report([SEEDS, MORE, MUTANT, ROT, MORE_ROT], Results(tmp_path / "results.jsonl")).lines())


def test_faults_and_branches_are_added_up_over_the_slices(tmp_path: Path) -> None:
    first = {"simulated_s": 5400, "hits": {"fault kill": 3, "branch reset": 1}}
    second = {"simulated_s": 1800, "hits": {"fault kill": 4}}
    said = shown(tmp_path, result("held", details=first, passed=60), result("held", MORE, second, passed=180))
    assert "240 seeds, 2.00 a second, 2.0 simulated hours" in said
    assert re.search(r"^ +7  kill +1  reset$", said, re.MULTILINE)


def test_each_planted_bug_is_shown_with_its_class_the_invariant_and_the_seed(tmp_path: Path) -> None:
    caught = {"name": "no-truncate", "class": "5 logs that differ", "invariant": "log matching", "seed": 17}
    missed = {"name": "x", "class": "12 clients", "invariant": "", "seed": 1000}
    said = shown(tmp_path, result("failed", MUTANT, {"mutants": [missed, caught]}))
    assert re.search(
        r"^no-truncate +5 logs that differ +log matching +17\nx +12 clients +MISSED +1000$", said, re.MULTILINE
    )


def test_what_became_of_damages_is_shown_by_structure(tmp_path: Path) -> None:
    table = {"a node alone": {"frame body": {"halts": 8}, "origin": {"rebuilt": 3, "halts": 2}}}
    said = shown(tmp_path, result("held", ROT, {"table": table}))
    assert re.search(r"^corruption, a node alone +halts +rebuilt\nframe body +8 +–\norigin +2 +3$", said, re.MULTILINE)


def test_what_became_of_damages_is_added_up_over_the_slices(tmp_path: Path) -> None:
    one, other = ({"a node alone": {"frame body": found}} for found in ({"halts": 8}, {"halts": 1, "rebuilt": 2}))
    said = shown(tmp_path, result("held", ROT, {"table": one}), result("held", MORE_ROT, {"table": other}))
    assert re.search(r"^corruption, a node alone +halts +rebuilt\nframe body +9 +2$", said, re.MULTILINE)


def test_what_hardly_a_seed_meets_must_have_been_met_in_all_of_them_together(tmp_path: Path) -> None:
    rare = [f"fault {name}" for name in RARE_FAULTS] + [f"branch {name}" for name in RARE_BRANCHES]
    common = [f"fault {name}" for name in (*FAULTS, *SELDOM_FAULTS)]
    common += [f"branch {name}" for name in (*BRANCHES, *SELDOM_BRANCHES)]
    results = Results(tmp_path / "results.jsonl")
    half = dict.fromkeys(common, 9)
    results.add(result("held", details={"simulated_s": 1, "hits": half}, passed=10_000))
    report = Report([SEEDS, MORE], results)
    assert not [said for said in report.shortcomings() if "never met" in said]
    results.add(result("held", MORE, {"simulated_s": 1, "hits": half | dict.fromkeys(rare[1:], 1)}, passed=10_000))
    assert Report([SEEDS, MORE], results).shortcomings() == [f"never met in 20,000 seeds: {rare[0]}"]


def test_families_can_be_typed() -> None:
    assert all(re.fullmatch(r"[a-z0-9-]+", each.family) for each in full())


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("print('3 passed, 0 failed')", "held"),
        ("print('2 passed, 0 failed')", "failed"),
        ("print('skipped: there is no such file system')", "skipped"),
        ("print('3 passed, 0 failed'); print('skipped: the loop devices are gone')", "skipped"),
        ("print('nothing')", "failed"),
        ("raise SystemExit(1)", "failed"),
    ],
)
def test_a_slice_holds_when_it_ends_well_and_has_counted_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, outcome: str
) -> None:
    (tmp_path / "some_proof.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(Slice, "sources", "of that program")
    proved, _ = _prove(SEEDS._replace(arguments=("some_proof",), asked=3))
    assert proved.outcome == outcome
