"""Results are added to the file of their month, and never lost, replaced or believed when they are damaged."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.proof.results import FULL, DamagedResults, Result, Results, line_of, parsed
from tests.support.sources import ROOT
from tests.unit.proof.sample import DAY, MORE, SEEDS, elsewhere, result

MONTH = "2026-11"


def kept(directory: Path, *done: Result) -> Results:
    results = Results(directory)
    for each in done:
        results.add(each)
    return Results(directory)


def test_a_result_outlives_the_run() -> None:
    done = result("held", details={"hits": {"fault kill": 3}}, passed=2)
    assert parsed(line_of(done), MONTH) == done


def test_results_are_added_up_though_they_are_of_the_same_slice(tmp_path: Path) -> None:
    done = [elsewhere("held"), result("failed", passed=1), result("held", passed=1), result("held", passed=1)]
    assert kept(tmp_path, *done).all == done


def test_a_line_that_was_written_stays_as_it_is(tmp_path: Path) -> None:
    kept(tmp_path, result("held", passed=2))
    before = (tmp_path / f"{MONTH}.jsonl").read_bytes()
    kept(tmp_path, result("held", MORE, passed=2))
    assert (tmp_path / f"{MONTH}.jsonl").read_bytes() == before + line_of(result("held", MORE, passed=2)).encode()


def test_each_month_has_a_file_of_its_own(tmp_path: Path) -> None:
    kept(tmp_path, result("held", day="2026-12-01", passed=1), result("held", day="2026-11-30", passed=1))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["2026-11.jsonl", "2026-12.jsonl"]


def test_results_are_in_the_order_of_their_ends_whatever_the_order_of_the_lines(tmp_path: Path) -> None:
    """As behind a merge of two branches."""
    done = [result("held", day=day, passed=1) for day in ("2026-11-26", "2026-11-25", "2026-10-31")]
    assert [each.day for each in kept(tmp_path, *done).all] == ["2026-10-31", "2026-11-25", "2026-11-26"]


def test_what_another_run_added_meanwhile_is_kept(tmp_path: Path) -> None:
    one, other = Results(tmp_path), Results(tmp_path)
    one.add(result("held", passed=1))
    other.add(result("held", MORE, passed=1))
    assert {each.slice for each in Results(tmp_path).all} == {SEEDS.name, MORE.name}


def test_a_directory_that_is_not_there_has_no_results(tmp_path: Path) -> None:
    assert Results(tmp_path / "nosuch").all == []


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "hled"},
        {"when": f"{DAY}"},
        {"when": "2026-12-27T12:00:00Z"},
        {"when": "2026-11-31T12:00:00Z"},
        {"when": 3},
        {"tree": ""},
        {"counts": {"passed": "many"}},
        {"counts": 3},
        {"duration_s": "long"},
        {"is_dirty": 0},
        {"details": []},
        {"more": 1},
    ],
)
def test_a_line_with_a_part_of_another_kind_is_no_result(change: dict[str, Any]) -> None:
    assert parsed(json.dumps(json.loads(line_of(result("held", passed=2))) | change), MONTH) is None


@pytest.mark.parametrize("line", ["", "no JSON", "[1]", '{"slice": "x"}', "<<<<<<< HEAD", '{"slice": "x", "outc'])
def test_a_line_that_is_none_of_ours_is_no_result(line: str) -> None:
    assert parsed(line, MONTH) is None


@pytest.mark.parametrize("damaged", [b"\xff\n", b"\n", b'{"slice": "x", "outc'])
def test_a_file_that_is_damaged_is_refused_in_a_sentence_and_left_as_it_is(tmp_path: Path, damaged: bytes) -> None:
    results, file = kept(tmp_path, result("held", passed=2)), tmp_path / f"{MONTH}.jsonl"
    file.write_bytes(file.read_bytes() + damaged)
    before = file.read_bytes()
    with pytest.raises(DamagedResults, match=r"^line 2 of .*2026-11.jsonl is no result of that month: restore"):
        Results(tmp_path)
    with pytest.raises(DamagedResults, match="line 2"):
        results.add(result("held", passed=2))
    assert file.read_bytes() == before


def test_the_results_of_the_repository_are_whole() -> None:
    assert Results(FULL).all


def test_git_merges_results_by_keeping_the_lines_of_both_sides() -> None:
    asked = ["git", "check-attr", "merge", "--", f"proofs/{MONTH}.jsonl"]
    done = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip().endswith("merge: union")
