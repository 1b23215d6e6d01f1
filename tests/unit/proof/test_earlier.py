"""A change of the sources voids nothing that was proved before: it makes it a proof of earlier sources."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from tests.proof.__main__ import _prove, _run, _verdict, main
from tests.proof.registry import Slice
from tests.proof.report import Report
from tests.proof.results import FULL, Result, Results, commit, commits_since
from tests.simulation.branches import BRANCHES, FAULTS, RARE_BRANCHES, RARE_FAULTS, SELDOM_BRANCHES, SELDOM_FAULTS
from tests.unit.proof.sample import DAY, MORE, MORE_ROT, MUTANT, ROT, SEEDS, earlier, newest, result

SLICES = [SEEDS, MORE, MUTANT, ROT, MORE_ROT]
COMMITS = {"old": 40, "mid": 30, "new": 20, "abc": 10}


def kept(tmp_path: Path, *done: Result) -> Results:
    results = Results(tmp_path / "results.jsonl")
    for each in done:
        results.add(each)
    return Results(tmp_path / "results.jsonl")


def report(tmp_path: Path, slices: list[Slice], *done: Result) -> Report:
    return Report(slices, kept(tmp_path, *done), COMMITS.get)


# What is kept ----------------------------------------------------------------------------------------------------


def test_a_result_keeps_its_day_and_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_proof.py").write_text("print('3 passed, 0 failed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(Slice, "sources", "of that program")
    before = datetime.now(UTC).date()
    proved, _ = _prove(SEEDS._replace(arguments=("some_proof",)))
    assert before <= date.fromisoformat(proved.day) <= before + timedelta(days=1)
    assert proved.commit == commit()
    assert newest(kept(tmp_path, proved), SEEDS._replace(arguments=("some_proof",))) == proved


def test_a_result_without_a_day_is_one_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    line = result("held", passed=1)._asdict()
    del line["day"]
    file.write_text(json.dumps(line) + "\n")
    assert newest(Results(file), SEEDS) == result("held", passed=1)._replace(day="")


def test_every_result_of_the_repository_has_the_day_of_a_run_or_of_its_commit() -> None:
    results = [json.loads(line) for line in FULL.read_text(encoding="utf-8").splitlines()]
    assert results
    assert all(date.fromisoformat(each["day"]) for each in results if each["day"])
    assert not [each["slice"] for each in results if "day" not in each]


def test_the_result_of_earlier_sources_stays_known(tmp_path: Path) -> None:
    known = kept(tmp_path, earlier("held")).known(SEEDS)
    assert known is not None
    assert known.newest == earlier("held")
    assert not known.as_it_is


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_the_newest_result_is_kept_and_the_newest_that_held(tmp_path: Path, outcome: str) -> None:
    oldest, held = earlier("held", day="2026-11-25"), earlier("held", day="2026-11-26")
    results = kept(tmp_path, oldest, held, earlier("failed"), result(outcome, passed=1))
    results.compact(SLICES)
    known = Results(tmp_path / "results.jsonl").known(SEEDS)
    assert known is not None
    assert (known.newest, known.held) == (result(outcome, passed=1), held)
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2


def test_a_result_that_held_replaces_all_older_ones(tmp_path: Path) -> None:
    results = kept(tmp_path, earlier("held"), earlier("failed"), result("held", passed=1))
    results.compact(SLICES)
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 1
    assert newest(Results(tmp_path / "results.jsonl"), SEEDS) == result("held", passed=1)


def test_compacting_twice_changes_nothing(tmp_path: Path) -> None:
    results = kept(tmp_path, earlier("held"), earlier("held", MORE), result("failed", passed=1))
    results.compact(SLICES)
    once = (tmp_path / "results.jsonl").read_bytes()
    Results(tmp_path / "results.jsonl").compact(SLICES)
    assert (tmp_path / "results.jsonl").read_bytes() == once


# What is run, and in which order ---------------------------------------------------------------------------------


def test_what_was_never_run_goes_first_then_the_longest_ago(tmp_path: Path) -> None:
    results = kept(
        tmp_path,
        earlier("held", SEEDS, day="2026-11-26"),
        earlier("held", MORE, day="2026-11-25"),
        earlier("failed", ROT, day="2026-11-27"),
    )
    assert results.pending([SEEDS, MORE, ROT, MUTANT]) == [MUTANT, MORE, SEEDS, ROT]


def test_an_unknown_day_is_the_longest_ago(tmp_path: Path) -> None:
    results = kept(tmp_path, earlier("held", SEEDS, day="2026-11-26"), earlier("held", MORE, day=""))
    assert results.pending([SEEDS, MORE]) == [MORE, SEEDS]


def test_of_one_day_the_run_that_was_earlier_goes_first(tmp_path: Path) -> None:
    results = kept(tmp_path, earlier("held", SEEDS), earlier("held", MORE), earlier("held", SEEDS))
    results.compact(SLICES)
    assert Results(tmp_path / "results.jsonl").pending([SEEDS, MORE]) == [MORE, SEEDS]


def test_what_held_of_the_present_sources_is_not_run_again(tmp_path: Path) -> None:
    assert kept(tmp_path, result("held", passed=1)).pending([SEEDS, MORE]) == [MORE]


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_what_did_not_hold_of_the_present_sources_is_run_again_last(tmp_path: Path, outcome: str) -> None:
    results = kept(tmp_path, result(outcome, passed=1), earlier("held", MORE))
    assert results.pending([SEEDS, MORE, ROT]) == [ROT, MORE, SEEDS]


def test_what_failed_is_run_again_though_the_present_sources_held_before(tmp_path: Path) -> None:
    assert kept(tmp_path, result("held", passed=1), earlier("failed")).pending([SEEDS]) == [SEEDS]
    assert kept(tmp_path, result("held", passed=1), result("failed", passed=1)).pending([SEEDS]) == [SEEDS]


def test_an_interrupted_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def prove(each: Slice) -> tuple[Result, str]:
        ran.append(each)
        if len(ran) == 2:
            raise KeyboardInterrupt
        return result("held", each, passed=1), ""

    monkeypatch.setattr("tests.proof.__main__._prove", prove)
    slices = [SEEDS, MORE, ROT]
    assert not _run(slices, kept(tmp_path, earlier("held", SEEDS)))
    assert _run(slices, Results(tmp_path / "results.jsonl"))
    assert ran == [MORE, ROT, ROT, SEEDS]


# What is said ----------------------------------------------------------------------------------------------------


def test_the_table_says_how_many_slices_are_of_which_sources(tmp_path: Path) -> None:
    slices = [SEEDS._replace(arguments=("tests.simulation", str(number))) for number in range(7)]
    done = (
        result("held", slices[0], passed=1),
        earlier("held", slices[1], day="2026-11-26", commit="new"),
        earlier("held", slices[2], day="2026-11-24", commit="mid"),
        earlier("held", slices[3], day="2026-11-25", commit="new"),
        earlier("failed", slices[4], day="2026-11-20", commit="old"),
        result("skipped", slices[5], passed=1),
    )
    [line] = report(tmp_path, slices, *done).table()[1:]
    columns = re.split(r"\s{2,}", line)
    assert columns[:9] == ["simulation", "7", "1", "3", "2026-11-24 – 2026-11-26", "30", "1", "1", "1"]


def test_a_single_day_is_no_range(tmp_path: Path) -> None:
    [line] = report(tmp_path, [SEEDS, MORE], earlier("held", SEEDS), earlier("held", MORE)).table()[1:]
    assert re.split(r"\s{2,}", line)[:6] == ["simulation", "2", "0", "2", DAY, "10"]


def test_days_and_commits_that_nobody_knows_are_called_unknown(tmp_path: Path) -> None:
    done = earlier("held", SEEDS, day="", commit="gone"), earlier("held", MORE)
    [line] = report(tmp_path, [SEEDS, MORE], *done).table()[1:]
    assert re.split(r"\s{2,}", line)[:6] == ["simulation", "2", "0", "2", f"unknown – {DAY}", "unknown"]
    word = report(tmp_path, [SEEDS, MORE]).word()
    assert word == "PROVED, 2 of 2 slices of earlier sources (oldest: unknown day, gone)"


def test_commits_are_counted_by_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.proof.results.ROOT", tmp_path)
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    commits = []
    for _ in range(3):
        subprocess.run(["git", *who, "commit", "--quiet", "--allow-empty", "-m", "x"], cwd=tmp_path, check=True)
        commits.append(commit())
    assert [commits_since(each) for each in commits] == [2, 1, 0]
    assert commits_since("no-such-commit") is None


def test_all_of_the_present_sources_is_proved_as_it_is(tmp_path: Path) -> None:
    said = report(tmp_path, [SEEDS, ROT], result("held", passed=1), result("held", ROT, damages=1))
    assert said.word() == "PROVED as it is"
    assert said.shortcomings() == []
    assert _verdict(said, was_run=True) == 0


def test_what_held_of_earlier_sources_is_proved_and_the_oldest_is_named(tmp_path: Path) -> None:
    done = (
        earlier("held", SEEDS, day="2026-11-26", commit="new"),
        earlier("held", MORE, day="2026-11-25", commit="mid"),
        earlier("held", ROT, day="2026-11-25", commit="old"),
        result("held", MUTANT, caught=1),
    )
    said = report(tmp_path, [SEEDS, MORE, ROT, MUTANT], *done)
    assert said.word() == "PROVED, 3 of 4 slices of earlier sources (oldest: 2026-11-25, old)"
    assert said.shortcomings() == []
    assert _verdict(said, was_run=False) == 0


@pytest.mark.parametrize("failed", [earlier("failed", day="2026-11-28", commit="new"), result("failed", passed=1)])
def test_a_failed_newest_run_is_not_hidden_by_an_older_one_that_held(tmp_path: Path, failed: Result) -> None:
    said = report(tmp_path, [SEEDS], result("held", passed=1)._replace(day="2026-11-26", commit="old"), failed)
    of_earlier = "" if failed.commit == "abc" else "; of earlier sources: 2026-11-28, new"
    assert said.word() == "NOT PROVED"
    assert said.shortcomings() == [f"failed: {SEEDS.name}{of_earlier}; held last: 2026-11-26, old"]
    assert re.split(r"\s{2,}", said.table()[1])[:8] == ["simulation", "1", "0", "0", "–", "–", "0", "1"]


def test_a_skipped_newest_run_is_not_hidden_by_an_older_one_that_held(tmp_path: Path) -> None:
    said = report(tmp_path, [SEEDS], earlier("held"), result("skipped", passed=1))
    assert said.word() == "NOT PROVED"
    [shortcoming] = said.shortcomings()
    assert shortcoming == f"skipped, as this machine cannot do it: {SEEDS.name}; held last: {DAY}, abc"


def test_a_run_of_earlier_sources_that_counted_too_little_is_not_proved(tmp_path: Path) -> None:
    each = SEEDS._replace(asked=3)
    said = report(tmp_path, [each], earlier("held", each))
    assert said.shortcomings() == [f"failed: {each.name}; of earlier sources: {DAY}, abc"]


def test_a_new_slice_is_never_run_and_named(tmp_path: Path) -> None:
    said = report(tmp_path, [SEEDS, MUTANT], earlier("held"))
    assert said.word() == "NOT PROVED"
    assert said.shortcomings() == [f"never run, 1 of 2 slices (make proof runs them): {MUTANT.name}"]
    assert re.split(r"\s{2,}", said.table()[2])[:7] == ["mutants", "1", "0", "0", "–", "–", "1"]


def test_slices_that_were_never_run_are_not_proved_as_they_are(tmp_path: Path) -> None:
    assert not report(tmp_path, [SEEDS, MUTANT], result("held", passed=1)).is_as_it_is


def test_of_many_that_were_never_run_the_first_are_named(tmp_path: Path) -> None:
    slices = [SEEDS._replace(arguments=(f"x{number}",)) for number in range(12)]
    [said] = report(tmp_path, slices).shortcomings()
    assert said.endswith("x8, x9, and 2 more")


def test_a_run_that_left_slices_of_earlier_sources_exits_with_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody changed the sources while they ran. The gate wants the sources as they are."""
    assert _verdict(report(tmp_path, [SEEDS], earlier("held")), was_run=True) == 1
    assert "Sources changed while this ran" in capsys.readouterr().out


def test_the_command_reports_what_was_proved_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept(tmp_path, earlier("held", SEEDS, commit=commit()))
    monkeypatch.setattr("tests.proof.__main__.FULL", tmp_path / "results.jsonl")
    monkeypatch.setattr("tests.proof.__main__.full", lambda: [SEEDS])
    monkeypatch.setattr(sys, "argv", ["proof", "--report"])
    before = (tmp_path / "results.jsonl").read_bytes()
    assert main() == 0
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert last == f"PROVED, 1 of 1 slices of earlier sources (oldest: {DAY}, {commit()})"
    assert (tmp_path / "results.jsonl").read_bytes() == before


# What the seeds met ----------------------------------------------------------------------------------------------

USUAL = dict.fromkeys([*(f"fault {name}" for name in FAULTS), *(f"branch {name}" for name in BRANCHES)], 9)
SELDOM = dict.fromkeys(
    [*(f"fault {name}" for name in SELDOM_FAULTS), *(f"branch {name}" for name in SELDOM_BRANCHES)], 9
)
RARE = dict.fromkeys([*(f"fault {name}" for name in RARE_FAULTS), *(f"branch {name}" for name in RARE_BRANCHES)], 9)


def seeds(done: Result, passed: int, hits: dict[str, int]) -> Result:
    return done._replace(counts={"passed": passed}, details={"simulated_s": 1, "hits": hits})


def test_rare_branches_may_have_been_met_by_earlier_sources(tmp_path: Path) -> None:
    old = seeds(earlier("held"), 10_000, USUAL | SELDOM | RARE)
    new = seeds(result("held", MORE), 10_000, USUAL | SELDOM)
    assert report(tmp_path, [SEEDS, MORE], old, new).shortcomings() == []


def test_what_the_present_seeds_should_meet_is_not_made_up_for_by_earlier_ones(tmp_path: Path) -> None:
    missing, *met = SELDOM
    old = seeds(earlier("held"), 10_000, USUAL | SELDOM | RARE)
    new = seeds(result("held", MORE), 10_000, USUAL | dict.fromkeys(met, 1))
    assert report(tmp_path, [SEEDS, MORE], old, new).shortcomings() == [f"never met in 10,000 seeds: {missing}"]


def test_a_branch_that_earlier_sources_did_not_have_is_never_met(tmp_path: Path) -> None:
    new, *met = USUAL
    old = seeds(earlier("held"), 10_000, dict.fromkeys(met, 1) | SELDOM | RARE)
    said = report(tmp_path, [SEEDS], old)
    assert said.word() == "NOT PROVED"
    earlier_sources = "10,000 of them of earlier sources, which may not have known it"
    assert said.shortcomings() == [f"never met in 10,000 seeds, {earlier_sources}: {new}"]
