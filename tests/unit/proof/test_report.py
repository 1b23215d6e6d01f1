"""What is proved is told of which sources, and what is not is not called so."""

from __future__ import annotations

import re

import pytest

from tests.proof.__main__ import _verdict
from tests.proof.report import Report
from tests.proof.results import Result
from tests.simulation.branches import BRANCHES, FAULTS, RARE_BRANCHES, RARE_FAULTS, SELDOM_BRANCHES, SELDOM_FAULTS
from tests.unit.proof.sample import (
    DAY,
    LONG_AGO,
    MORE,
    MORE_ROT,
    MUTANT,
    ROT,
    SEEDS,
    elsewhere,
    history,
    report,
    result,
)

# The last word ---------------------------------------------------------------------------------------------------


def test_what_holds_of_this_tree_is_proved_on_it() -> None:
    said = report([SEEDS, ROT], result("held", passed=1), result("held", ROT, damages=1))
    assert (said.word(), said.shortcomings(), _verdict(said, was_run=True)) == ("PROVED on this tree", [], 0)


def test_what_holds_of_this_tree_stays_proved_however_long_ago_that_was() -> None:
    assert report([SEEDS], result("held", day=LONG_AGO, passed=1)).word() == "PROVED on this tree"


def test_what_held_of_other_trees_of_late_is_proved_and_the_oldest_is_named() -> None:
    done = (
        elsewhere("held", ROT, day="2026-11-25", commit="old"),
        elsewhere("held", SEEDS, day="2026-11-26", commit="new"),
        result("held", MUTANT, caught=1),
    )
    said = report([SEEDS, ROT, MUTANT], *done)
    assert (
        said.word()
        == "PROVED in the last 30 days, 2 of 3 slices on other trees than this (the oldest: 2026-11-25, old)"
    )
    assert _verdict(said, was_run=False) == 0


def test_what_held_of_another_tree_long_ago_is_not_proved_any_more() -> None:
    said = report([SEEDS, MORE], elsewhere("held", day=LONG_AGO), result("held", MORE, passed=1))
    assert said.word() == "NOT PROVED"
    what = "last run more than 30 days ago, of another tree, 1 of 2 slices (make proof runs them)"
    assert said.shortcomings() == [f"{what}: {SEEDS.name}"]


@pytest.mark.parametrize("failed", [elsewhere("failed", commit="new"), result("failed", passed=1)])
def test_a_failed_newest_run_is_not_hidden_by_an_older_one_that_held(failed: Result) -> None:
    said = report([SEEDS], result("held", day="2026-11-26", passed=1), failed)
    of_another = "" if failed.commit == "abc" else f"; of another tree: {DAY}, new"
    assert said.word() == "NOT PROVED"
    assert said.shortcomings() == [f"failed: {SEEDS.name}{of_another}; held last: 2026-11-26, abc"]


def test_a_skipped_newest_run_is_not_hidden_by_an_older_one_that_held() -> None:
    said = report([SEEDS], elsewhere("held"), result("skipped", passed=1))
    assert said.word() == "NOT PROVED"
    [shortcoming] = said.shortcomings()
    assert shortcoming == f"skipped, as this machine cannot do it: {SEEDS.name}; held last: {DAY}, abc"


def test_a_run_that_counted_too_little_is_not_proved() -> None:
    each = SEEDS._replace(asked=3)
    assert report([each], result("held", each, passed=2)).shortcomings() == [f"failed: {each.name}"]


def test_a_new_slice_is_never_run_and_named() -> None:
    said = report([SEEDS, MUTANT], elsewhere("held"))
    assert said.word() == "NOT PROVED"
    assert said.shortcomings() == [f"never run, 1 of 2 slices (make proof runs them): {MUTANT.name}"]


def test_of_many_that_were_never_run_the_first_are_named() -> None:
    [said] = report([SEEDS._replace(arguments=(f"x{number}",)) for number in range(12)]).shortcomings()
    assert said.endswith("x8, x9, and 2 more")


def test_seeds_that_failed_are_named() -> None:
    failed = result("failed", details={"failed": [[7, "liveness"], [9, "no duplicates"]]}, passed=1, failed=2)
    said = report([SEEDS], failed).shortcomings()
    assert said == [f"failed: {SEEDS.name}; seed 7: liveness; seed 9: no duplicates"]


def test_changes_that_were_not_committed_are_named() -> None:
    said = report([SEEDS], elsewhere("failed")._replace(is_dirty=True)).shortcomings()
    assert said == [f"failed: {SEEDS.name}; of another tree: {DAY}, abc and uncommitted changes"]


def test_a_run_that_left_slices_of_other_trees_exits_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody changed the sources while they ran. The gate wants the sources as they are."""
    assert _verdict(report([SEEDS], elsewhere("held")), was_run=True) == 1
    assert "Sources changed while this ran" in capsys.readouterr().out


# The table and the sentences -------------------------------------------------------------------------------------


def test_a_family_has_a_line_with_its_counts_on_this_tree_of_late_and_in_all() -> None:
    done = (
        elsewhere("held", day=LONG_AGO, tree="old", passed=5_000),
        elsewhere("held", passed=40),
        result("held", passed=3),
        result("failed", MORE, passed=1),
        result("skipped", MUTANT),
    )
    [line, of_mutants] = report([SEEDS, MORE, MUTANT], *done).table()[1:]
    assert re.split(r"\s{2,}", line) == ["simulation", "2", "1", "0", "3", "43", "5,043", "0.07", "seeds"]
    assert re.split(r"\s{2,}", of_mutants)[:5] == ["mutants", "1", "0", "1", "0"]


@pytest.mark.parametrize(
    ("done", "sentence"),
    [
        ([result("held", passed=1), result("held", MORE, passed=1)], "is reached on this tree."),
        (
            [elsewhere("held"), result("held", MORE, passed=1)],
            "is reached in the last 30 days; 1 of 2 slices are left on this tree.",
        ),
        (
            [elsewhere("held")],
            "is not reached: 2 of 2 slices are left on this tree, and 1 have not held in the last 30 days either.",
        ),
    ],
)
def test_a_sentence_says_where_the_aim_is_reached(done: list[Result], sentence: str) -> None:
    [said, *_] = report([SEEDS, MORE], *done).sentences()
    assert said == f"simulation: The aim of 2 seeds {sentence}"


def test_the_paths_that_changed_since_the_last_result_of_another_tree_are_named() -> None:
    asked = []

    def changed(family: str, since: Result) -> list[str]:
        asked.append((family, since))
        return [f"dledger/{number}.py" for number in range(12)]

    [_, said] = Report(history([SEEDS], elsewhere("held"), result("held", passed=1)), changed).sentences()
    assert asked == [("simulation", elsewhere("held"))]
    assert said.strip().startswith(f"Changed since {DAY}, abc, 12 paths: dledger/0.py, dledger/1.py")
    assert said.endswith("dledger/9.py, and 2 more")


def test_paths_are_not_named_where_git_does_not_know_the_commit() -> None:
    [_, said] = Report(history([SEEDS], elsewhere("held")), lambda *_: None).sentences()
    assert said.strip() == f"What changed since {DAY}, abc is not known: git has no such commit here."


def test_where_all_is_of_this_tree_nothing_is_said_of_changes() -> None:
    assert len(report([SEEDS], result("held", passed=1)).sentences()) == 1


# What the seeds met ----------------------------------------------------------------------------------------------

USUAL = dict.fromkeys([*(f"fault {name}" for name in FAULTS), *(f"branch {name}" for name in BRANCHES)], 9)
SELDOM = dict.fromkeys(
    [*(f"fault {name}" for name in SELDOM_FAULTS), *(f"branch {name}" for name in SELDOM_BRANCHES)], 9
)
RARE = dict.fromkeys([*(f"fault {name}" for name in RARE_FAULTS), *(f"branch {name}" for name in RARE_BRANCHES)], 9)


def seeds(done: Result, passed: int, hits: dict[str, int]) -> Result:
    return done._replace(counts={"passed": passed}, details={"simulated_s": 1, "hits": hits})


def test_rare_branches_may_have_been_met_by_other_trees() -> None:
    old = seeds(elsewhere("held"), 10_000, USUAL | SELDOM | RARE)
    new = seeds(result("held", MORE), 10_000, USUAL | SELDOM)
    assert report([SEEDS, MORE], old, new).shortcomings() == []


def test_what_the_seeds_of_this_tree_should_meet_is_not_made_up_for_by_others() -> None:
    missing, *met = SELDOM
    old = seeds(elsewhere("held"), 10_000, USUAL | SELDOM | RARE)
    new = seeds(result("held", MORE), 10_000, USUAL | dict.fromkeys(met, 1))
    assert report([SEEDS, MORE], old, new).shortcomings() == [f"never met in 10,000 seeds: {missing}"]


def test_a_branch_that_other_trees_did_not_have_is_never_met() -> None:
    new, *met = USUAL
    said = report([SEEDS], seeds(elsewhere("held"), 10_000, dict.fromkeys(met, 1) | SELDOM | RARE))
    assert said.word() == "NOT PROVED"
    others = "10,000 of them of other trees, which may not have known it"
    assert said.shortcomings() == [f"never met in 10,000 seeds, {others}: {new}"]


def test_what_hardly_a_seed_meets_must_have_been_met_in_all_of_them_together() -> None:
    missing, *met = RARE
    one = seeds(result("held"), 10_000, USUAL | SELDOM)
    other = seeds(result("held", MORE), 10_000, USUAL | SELDOM | dict.fromkeys(met, 1))
    assert not [said for said in report([SEEDS, MORE], one).shortcomings() if "never met" in said]
    assert report([SEEDS, MORE], one, other).shortcomings() == [f"never met in 20,000 seeds: {missing}"]


def test_no_branch_is_asked_for_twice() -> None:
    assert not {*USUAL} & {*SELDOM} | {*SELDOM} & {*RARE} | {*RARE} & {*USUAL}


# What some families have to show ---------------------------------------------------------------------------------


def shown(*done: Result) -> str:
    return "\n".join(report([SEEDS, MORE, MUTANT, ROT, MORE_ROT], *done).lines())


def test_faults_and_branches_are_added_up_over_the_slices() -> None:
    first = {"simulated_s": 5400, "hits": {"fault kill": 3, "branch reset": 1}}
    second = {"simulated_s": 1800, "hits": {"fault kill": 4}}
    said = shown(result("held", details=first, passed=60), result("held", MORE, second, passed=180))
    assert "240 seeds, 2.00 a second, 2.0 simulated hours" in said
    assert re.search(r"^ +7  kill +1  reset$", said, re.MULTILINE)


def test_each_planted_bug_is_shown_with_its_class_the_invariant_and_the_seed() -> None:
    caught = {"name": "no-truncate", "class": "5 logs that differ", "invariant": "log matching", "seed": 17}
    missed = {"name": "x", "class": "12 clients", "invariant": "", "seed": 1000}
    said = shown(result("failed", MUTANT, {"mutants": [missed, caught]}))
    assert re.search(
        r"^no-truncate +5 logs that differ +log matching +17\nx +12 clients +MISSED +1000$", said, re.MULTILINE
    )


def test_what_became_of_damages_is_shown_by_structure() -> None:
    table = {"a node alone": {"frame body": {"halts": 8}, "origin": {"rebuilt": 3, "halts": 2}}}
    said = shown(result("held", ROT, {"table": table}))
    assert re.search(r"^corruption, a node alone +halts +rebuilt\nframe body +8 +–\norigin +2 +3$", said, re.MULTILINE)


def test_what_became_of_damages_is_added_up_over_the_slices() -> None:
    one, other = ({"a node alone": {"frame body": found}} for found in ({"halts": 8}, {"halts": 1, "rebuilt": 2}))
    said = shown(result("held", ROT, {"table": one}), result("held", MORE_ROT, {"table": other}))
    assert re.search(r"^corruption, a node alone +halts +rebuilt\nframe body +9 +2$", said, re.MULTILINE)
