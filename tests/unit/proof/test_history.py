"""A change of the sources voids nothing that was proved before: it makes it a proof of another tree."""

from __future__ import annotations

import pytest

from tests.proof.history import Known, changed, commit_word
from tests.proof.registry import Slice
from tests.proof.results import Result
from tests.unit.proof.sample import DAY, LONG_AGO, MORE, MUTANT, ROT, SEEDS, elsewhere, history, result

LAST_DAY = "2026-10-29"
"""Of the 30 before today."""


def known(*results: Result, each: Slice = SEEDS) -> Known:
    found = history([each], *results).known(each)
    assert found is not None
    return found


# What is known of a slice ----------------------------------------------------------------------------------------


def test_the_result_of_another_tree_stays_known() -> None:
    assert known(elsewhere("held")).newest == elsewhere("held")
    assert not known(elsewhere("held")).holds_here


def test_a_slice_without_a_result_is_not_known() -> None:
    assert history([SEEDS], result("held", MORE, passed=1)).known(SEEDS) is None


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_the_newest_result_is_known_and_the_newest_that_held(outcome: str) -> None:
    held, newest = elsewhere("held", day="2026-11-26"), result(outcome, passed=1)
    found = known(elsewhere("held", day="2026-11-25"), held, newest)
    assert (found.newest, found.held) == (newest, held)


def test_what_counted_too_little_has_failed_though_it_is_said_to_have_held() -> None:
    """More may be asked for by now."""
    assert known(result("held", passed=2), each=SEEDS._replace(asked=3)).newest.outcome == "failed"


@pytest.mark.parametrize(("day", "is_recent"), [(DAY, True), (LAST_DAY, True), ("2026-10-28", False)])
def test_a_result_is_of_the_last_thirty_days_or_older(day: str, is_recent: bool) -> None:
    assert known(elsewhere("held", day=day)).is_recent == is_recent


def test_a_failure_of_this_tree_is_one_though_another_tree_held_since() -> None:
    failed = result("failed", passed=1)
    assert known(failed, elsewhere("held")).failure == failed


def test_a_failure_of_another_tree_is_made_good_by_this_one() -> None:
    assert known(elsewhere("failed"), result("held", passed=1)).failure is None


# What is run, and in which order ---------------------------------------------------------------------------------


def test_what_was_never_run_goes_first_then_the_longest_ago() -> None:
    results = elsewhere("held", MORE, day="2026-11-25"), elsewhere("held", SEEDS), elsewhere("failed", ROT)
    assert history([SEEDS, MORE, ROT, MUTANT], *results).pending() == [MUTANT, MORE, SEEDS, ROT]


def test_the_newest_run_says_how_long_ago_a_slice_was_run() -> None:
    results = elsewhere("held", SEEDS), elsewhere("held", MORE), elsewhere("held", SEEDS)
    assert history([SEEDS, MORE], *results).pending() == [MORE, SEEDS]


def test_what_held_of_this_tree_is_not_run_again() -> None:
    assert history([SEEDS, MORE], result("held", passed=1)).pending() == [MORE]


def test_what_held_of_this_tree_is_not_run_again_though_another_tree_held_since() -> None:
    assert history([SEEDS], result("held", passed=1), elsewhere("held")).pending() == []


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_what_did_not_hold_of_this_tree_is_run_again_last(outcome: str) -> None:
    results = result(outcome, passed=1), elsewhere("held", MORE)
    assert history([SEEDS, MORE, ROT], *results).pending() == [ROT, MORE, SEEDS]


@pytest.mark.parametrize("failed", [elsewhere("failed"), result("failed", passed=1)])
def test_what_failed_is_run_again_though_this_tree_held_before(failed: Result) -> None:
    assert history([SEEDS], result("held", passed=1), failed).pending() == [SEEDS]


# How far a family has come ---------------------------------------------------------------------------------------


def test_counts_are_added_up_on_this_tree_of_late_and_in_all() -> None:
    results = (
        elsewhere("held", SEEDS, day=LONG_AGO, tree="old", passed=500),
        elsewhere("held", SEEDS, passed=40),
        elsewhere("held", MORE, passed=7),
        result("held", SEEDS, passed=3),
    )
    far = history([SEEDS, MORE], *results).progress("simulation")
    assert (far.here, far.of_late, far.in_all) == (3, 50, 550)


def test_a_slice_counts_once_a_tree() -> None:
    results = elsewhere("held", passed=40), elsewhere("held", passed=41)
    assert history([SEEDS], *results).progress("simulation").in_all == 41


def test_a_run_that_held_does_not_count_behind_one_of_the_same_tree_that_failed() -> None:
    assert history([SEEDS], elsewhere("held", passed=40), elsewhere("failed")).progress("simulation").in_all == 0


def test_what_is_no_slice_any_more_counts_in_all() -> None:
    results = elsewhere("held", MORE, passed=40), result("held", passed=3)
    assert history([SEEDS], *results).progress("simulation").in_all == 43


def test_families_are_counted_apart() -> None:
    assert history([SEEDS, ROT], elsewhere("held", ROT, passed=9)).progress("simulation").in_all == 0


def test_what_is_left_is_told_on_this_tree_and_of_late() -> None:
    results = (
        result("held", SEEDS, passed=1),
        elsewhere("held", MORE),
        elsewhere("held", SEEDS._replace(arguments=("old",)), day=LONG_AGO),
    )
    slices = [SEEDS, MORE, SEEDS._replace(arguments=("old",)), SEEDS._replace(arguments=("never",))]
    far = history(slices, *sorted(results, key=lambda each: each.when)).progress("simulation")
    assert (far.slices, far.left_here, far.left_of_late) == (4, 3, 2)


def test_what_holds_of_this_tree_is_not_left_however_long_ago_it_was_run() -> None:
    assert history([SEEDS], result("held", day=LONG_AGO, passed=1)).progress("simulation").left_of_late == 0


def test_the_aim_is_what_its_slices_ask_for() -> None:
    far = history([SEEDS._replace(asked=500), MORE._replace(asked=300)]).progress("simulation")
    assert (far.aim, far.unit) == (800, "seeds")


def test_the_last_result_of_another_tree_is_what_paths_are_compared_with() -> None:
    last = elsewhere("failed", MORE, day="2026-11-26")
    results = elsewhere("held", day="2026-11-25"), last, result("held", passed=1)
    assert history([SEEDS, MORE], *results).progress("simulation").elsewhere == last
    assert history([SEEDS], result("held", passed=1)).progress("simulation").elsewhere is None


# What has changed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "now", "paths"),
    [
        ({"a.py": "1"}, {"a.py": "1"}, []),
        ({"a.py": "1"}, {"a.py": "2"}, ["a.py"]),
        ({}, {"b/c.py": "1", "a.py": "2"}, ["a.py", "b/c.py"]),
        ({"a.py": "1", "gone.py": "1"}, {"a.py": "1"}, ["gone.py"]),
        ({"a.py": "1", "b/gone.py": "1"}, {"a.py": "1"}, []),
        ({"a.py": "1", "there.py": "1"}, {"a.py": "1"}, []),
        ({"a.py": "1", "gone.md": "1"}, {"a.py": "1"}, []),
    ],
)
def test_a_path_has_changed_that_is_new_another_or_gone(
    then: dict[str, str], now: dict[str, str], paths: list[str]
) -> None:
    assert changed(then, now, lambda path: "gone" in path) == paths


def test_results_are_committed_once_a_day() -> None:
    assert "commit these tomorrow" in commit_word(DAY, DAY)
    assert "commit them, once a day" in commit_word("2026-11-26", DAY)
    assert "commit them, once a day" in commit_word(None, DAY)
