"""What a follower answers to COMPARE and RESET, wherever the point lies."""

from __future__ import annotations

import pytest

from dledger.common.types import LogPoint, Position
from dledger.raft.following import compare_elsewhere, judge_compare, judge_reset, judge_truncate
from dledger.raft.messages import PushResult
from tests.unit.raft.harness import point

START, LAST = point(100, 3), point(200, 5)
COMMIT = Position(150)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(0, START), (99, START), (100, None), (150, None), (200, None), (201, LAST)],
)
def test_outside_of_the_log_the_leader_is_sent_to_its_nearer_end(asked: int, answer: LogPoint | None) -> None:
    assert compare_elsewhere(Position(asked), START, LAST) == answer


@pytest.mark.parametrize(
    ("asked", "mine", "result"),
    [
        (point(180, 5), point(180, 5), PushResult.SUCCESS),
        (point(180, 5), point(180, 4), PushResult.INCONSISTENT_STATE),
        (point(180, 5, chain=1), point(180, 5, chain=2), PushResult.DIVERGED),
        (point(150, 5), point(150, 4), PushResult.DIVERGED),
        (point(151, 5), point(151, 4), PushResult.INCONSISTENT_STATE),
    ],
)
def test_only_what_is_not_committed_may_differ_and_only_by_its_term(
    asked: LogPoint, mine: LogPoint, result: PushResult
) -> None:
    assert judge_compare(asked, mine, COMMIT) is result


def test_a_leader_that_looks_below_what_was_committed_before_its_term_has_lost_it() -> None:
    assert judge_compare(point(149, 4), point(149, 4), COMMIT, COMMIT) is PushResult.DIVERGED
    assert judge_compare(point(150, 4), point(150, 4), COMMIT, COMMIT) is PushResult.SUCCESS


@pytest.mark.parametrize(
    ("after", "result"),
    [
        (149, PushResult.DIVERGED),
        (150, PushResult.INCONSISTENT_STATE),
        (169, PushResult.INCONSISTENT_STATE),
        (170, PushResult.SUCCESS),
    ],
)
def test_only_what_was_not_found_equal_is_cut(after: int, result: PushResult) -> None:
    assert judge_truncate(Position(after), Position(170), COMMIT) is result


def test_a_log_that_ends_below_the_leaders_begin_begins_anew() -> None:
    assert judge_reset(point(300, 6), None, START, COMMIT) is PushResult.SUCCESS


def test_a_log_that_has_the_leaders_begin_drops_nothing() -> None:
    assert judge_reset(point(180, 5), point(180, 5), START, COMMIT) is PushResult.INCONSISTENT_STATE


def test_a_log_that_begins_later_drops_nothing() -> None:
    assert judge_reset(point(90, 3), None, START, COMMIT) is PushResult.INCONSISTENT_STATE


def test_a_tail_that_was_never_committed_does_not_keep_a_log_from_beginning_anew() -> None:
    """An old leader that wrote on alone, past where the others have trimmed by now: no COMPARE finds a shared point,
    and no TRUNCATE can name one."""
    assert judge_reset(point(180, 6), point(180, 5), START, COMMIT) is PushResult.SUCCESS


@pytest.mark.parametrize("mine", [point(180, 6, chain=9), point(140, 5)])
def test_nothing_begins_anew_over_what_is_committed_or_of_the_same_term(mine: LogPoint) -> None:
    asked = LogPoint(mine.position, point(0, 6).term, 1)
    assert judge_reset(asked, mine, START, COMMIT) is PushResult.DIVERGED
