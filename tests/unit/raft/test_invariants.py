from __future__ import annotations

import pytest

from dledger.common.types import Position, Role, Term
from dledger.raft import invariants
from dledger.raft.messages import NOBODY
from tests.unit.raft.harness import N0, N1, point


def test_a_term_may_rise_and_a_first_vote_be_given() -> None:
    invariants.check_hard_state(Term(3), N1, Term(4), NOBODY)
    invariants.check_hard_state(Term(3), N1, Term(4), N0)
    invariants.check_hard_state(Term(3), NOBODY, Term(3), N0)
    invariants.check_hard_state(Term(3), N0, Term(3), N0)


def test_a_term_never_falls() -> None:
    with pytest.raises(AssertionError, match="fell from 3 to 2"):
        invariants.check_hard_state(Term(3), NOBODY, Term(2), NOBODY)


@pytest.mark.parametrize("new_vote", [N1, NOBODY])
def test_a_vote_is_neither_changed_nor_taken_back_within_its_term(new_vote: str) -> None:
    with pytest.raises(AssertionError, match="the vote of term 3"):
        invariants.check_hard_state(Term(3), N0, Term(3), type(N0)(new_vote))


def test_the_commit_position_stays_in_the_log() -> None:
    invariants.check_commit(Position(5), point(5, 1))
    with pytest.raises(AssertionError, match="the log ends at 5"):
        invariants.check_commit(Position(6), point(5, 1))


def test_a_leader_commits_nothing_by_counting_before_its_terms_first_frame() -> None:
    invariants.check_leader_commit(Position(7), Position(7))
    with pytest.raises(AssertionError, match="before the term's own"):
        invariants.check_leader_commit(Position(6), Position(7))


def test_nobody_cuts_what_is_committed_and_a_leader_cuts_nothing() -> None:
    invariants.check_truncate(Role.FOLLOWER, Position(5), Position(5))
    with pytest.raises(AssertionError, match="committed position 5"):
        invariants.check_truncate(Role.FOLLOWER, Position(4), Position(5))
    with pytest.raises(AssertionError, match="a leader was to truncate"):
        invariants.check_truncate(Role.LEADER, Position(5), Position(5))


def test_no_term_is_led_twice_by_one_node() -> None:
    invariants.check_became_leader(Term(3), Term(4))
    with pytest.raises(AssertionError, match="term 3 was led before"):
        invariants.check_became_leader(Term(3), Term(3))
