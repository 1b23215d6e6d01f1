"""One node's decisions, as transcripts (see harness.py for how to read them)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.common.types import NodeId, Position, Role, Term
from dledger.raft.effects import Persist, Send
from dledger.raft.messages import NOBODY, TakeLeadership, VoteRequest, VoteResult
from dledger.raft.raft_node import RaftNode
from tests.unit.raft.harness import (
    GROUP,
    N0,
    N1,
    N2,
    N3,
    N4,
    START_MS,
    TIMINGS,
    LogEnd,
    follow,
    heartbeat,
    make_leader,
    make_node,
    members,
    point,
    transcript,
    vote_request,
    vote_response,
)

LEARNER = NodeId("l0")
HEARTBEAT_MS = TIMINGS.heartbeat_interval_ms
TIMEOUT_MS = TIMINGS.election_timeout_min_ms


def tick(node: RaftNode) -> float:
    """Lets time pass to the node's next deadline."""
    now_ms = node.deadline_ms
    node.tick(now_ms)
    return now_ms


# An election ---------------------------------------------------------------------------------------------------------


def test_an_election_of_three() -> None:
    node = make_node(N0)
    now_ms = tick(node)
    assert transcript(node) == ["candidate in 0 of -", "pre-vote for 1 → n1", "pre-vote for 1 → n2"]

    node.on_vote_response(N2, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    assert transcript(node) == [
        "candidate in 0 of -",
        "persist 1 n0",
        "candidate in 1 of -",
        "vote for 1 → n1",
        "vote for 1 → n2",
    ]

    node.on_vote_response(N1, vote_response(1), now_ms)
    assert transcript(node) == [
        "leader in 1 of n0",
        "heartbeat 1 commit 0 round 0 → n1",
        "heartbeat 1 commit 0 round 0 → n2",
    ]


def test_a_single_voter_leads_at_once() -> None:
    node = make_node(N0, membership=members(1))
    node.tick(START_MS)
    assert transcript(node)[-2:] == ["candidate in 1 of -", "leader in 1 of n0"]


def test_a_single_voter_leads_a_higher_term_after_a_restart() -> None:
    """H2: DLedger keeps its term over a restart, and two entries of one (index, term) may follow."""
    node = make_node(N0, membership=members(1), term=1, vote=N0, log=LogEnd(point(7, 1)))
    node.tick(START_MS)
    assert (node.role, node.term) == (Role.LEADER, 2)
    assert "persist 2 n0" in transcript(node)


def test_term_and_vote_are_persisted_before_anything_that_rests_on_them() -> None:
    node = make_node(N0)
    now_ms = tick(node)
    node.on_vote_response(N1, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    effects = node.take_effects()
    persisted = effects.index(Persist(Term(1), N0))
    asked = [
        at for at, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, VoteRequest) and e.to != N0
    ]
    assert len(asked) == 4, "two pre-votes and two votes"
    assert all(persisted < at for at in asked[2:])


def test_random_waits_lie_between_the_timeouts() -> None:
    waits = {make_node(N0, seed=seed).deadline_ms - START_MS for seed in range(50)}
    assert len(waits) > 40
    assert TIMEOUT_MS <= min(waits) < max(waits) <= TIMINGS.election_timeout_max_ms


def test_a_lost_ballot_is_repeated_soon_and_not_at_once() -> None:
    node = make_node(N0)
    now_ms = tick(node)
    for voter in (N1, N2):
        refusal = vote_response(1, VoteResult.ALREADY_HAS_LEADER, voter_term=0, is_pre_vote=True)
        node.on_vote_response(voter, refusal, now_ms)
    assert now_ms + HEARTBEAT_MS <= node.deadline_ms <= now_ms + 3 * HEARTBEAT_MS
    assert (node.role, node.term) == (Role.CANDIDATE, 0)


def test_a_refusal_with_a_higher_term_lifts_the_candidates() -> None:
    node = make_node(N0)
    now_ms = tick(node)
    node.take_effects()
    refusal = vote_response(1, VoteResult.EXPIRED_VOTE_TERM, voter_term=6, is_pre_vote=True)
    node.on_vote_response(N1, refusal, now_ms)
    assert transcript(node) == ["persist 6 -", "follower in 6 of -"]


def test_a_pre_vote_won_is_no_vote_won() -> None:
    node = make_node(N0, membership=members(5))
    now_ms = tick(node)
    for voter in (N1, N2):
        node.on_vote_response(voter, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    for voter in (N3, N4):  # the rest of the pre-votes comes while votes are counted
        node.on_vote_response(voter, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    assert (node.role, node.term) == (Role.CANDIDATE, 1)


def test_votes_of_an_earlier_term_elect_nobody() -> None:
    node = make_node(N0)
    for _ in range(2):
        now_ms = tick(node)
        node.on_vote_response(N1, vote_response(node.term + 1, voter_term=node.term, is_pre_vote=True), now_ms)
    assert node.term == 2
    node.on_vote_response(N1, vote_response(1, voter_term=2), now_ms)
    assert node.role is Role.CANDIDATE


def test_a_vote_that_comes_after_a_restart_elects_nobody() -> None:
    node = make_node(N0, term=1, vote=N0)
    node.on_vote_response(N1, vote_response(1), START_MS)
    node.on_vote_response(N2, vote_response(1), START_MS)
    assert node.role is Role.FOLLOWER


def test_a_candidate_gives_way_to_the_leader_of_its_term() -> None:
    node = make_node(N0)
    now_ms = tick(node)
    node.on_vote_response(N1, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    node.take_effects()
    node.on_heartbeat(N2, heartbeat(1), now_ms)
    assert transcript(node) == ["follower in 1 of n2", "heard 1 round 0 → n2"]
    node.on_vote_response(N1, vote_response(1), now_ms)
    assert node.role is Role.FOLLOWER, "votes counted before are forgotten"


@given(st.integers(0, 100), st.integers(10, 60))
def test_an_isolated_nodes_term_stands_still(seed: int, timeouts: int) -> None:
    node = make_node(N0, term=7, vote=N1, seed=seed)
    for _ in range(timeouts):
        tick(node)
    assert (node.role, node.term, node.vote) == (Role.CANDIDATE, 7, N1)
    assert not any(isinstance(effect, Persist) for effect in node.take_effects())


def test_a_pre_vote_puts_off_nobodys_timer() -> None:
    voter = make_node(N1)
    deadline_ms = voter.deadline_ms
    voter.on_vote_request(N0, vote_request(1, is_pre_vote=True), START_MS + 50)
    assert voter.deadline_ms == deadline_ms


# Who does not stand --------------------------------------------------------------------------------------------------


def test_a_learner_never_stands() -> None:
    node = make_node(LEARNER, membership=members(3, learners=[LEARNER]))
    for _ in range(10):
        tick(node)
    assert transcript(node) == []
    assert node.role is Role.LEARNER


def test_a_node_that_may_not_vote_never_stands_until_it_may() -> None:
    node = make_node(N0)
    node.set_may_vote(False, START_MS)
    assert transcript(node) == ["learner in 0 of -"]
    for _ in range(10):
        tick(node)
    assert transcript(node) == []
    node.set_may_vote(True, node.deadline_ms)
    assert transcript(node) == ["follower in 0 of -"]
    tick(node)
    assert node.role is Role.CANDIDATE


def test_a_learner_that_hears_its_leader_no_more_has_none() -> None:
    node = make_node(LEARNER, membership=members(3, learners=[LEARNER]))
    follow(node, N1, 1)
    assert node.leader_id == N1
    tick(node)
    assert (node.role, node.leader_id, node.term) == (Role.LEARNER, NOBODY, 1)


def test_a_learner_that_becomes_a_voter_by_the_log_stands() -> None:
    node = make_node(N3, membership=members(3, learners=[N3]))
    node.set_membership(members(4), START_MS)
    tick(node)
    assert transcript(node)[:2] == ["follower in 0 of -", "candidate in 0 of -"]


def test_a_learner_that_is_told_to_take_the_leadership_does_not() -> None:
    node = make_node(LEARNER, membership=members(3, learners=[LEARNER]))
    follow(node, N1, term=3)
    node.on_take_leadership(N1, TakeLeadership(GROUP, Term(3), Position(0)), START_MS)
    assert transcript(node) == []


def test_the_vote_of_a_node_in_doubt_is_not_counted() -> None:
    node = make_node(N0)
    node.doubt(N1)
    now_ms = tick(node)
    node.on_vote_response(N1, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    assert node.term == 0
    node.on_vote_response(N2, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    assert node.term == 1


# A leader's word: every answer to a heartbeat ------------------------------------------------------------------------


def test_a_heartbeat_of_ones_own_id_is_not_obeyed() -> None:
    node = make_node(N0, term=3)
    assert not node.hear_leader(N0, Term(4), START_MS)
    assert node.term == 3


def test_a_heartbeat_of_a_lower_term_is_answered_with_the_higher_and_not_obeyed() -> None:
    node = make_node(N0, term=3)
    deadline_ms = node.deadline_ms
    node.on_heartbeat(N1, heartbeat(2), START_MS)
    assert transcript(node) == ["heard 3 round 0 → n1"]
    assert (node.leader_id, node.deadline_ms) == (NOBODY, deadline_ms)


def test_the_first_heartbeat_of_the_term_is_followed() -> None:
    node = make_node(N0, term=3)
    node.on_heartbeat(N1, heartbeat(3, round_number=8), START_MS)
    assert transcript(node) == ["persist 3 n1", "follower in 3 of n1", "heard 3 round 8 → n1"]


def test_the_leaders_next_heartbeat_puts_off_the_election() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    later_ms = node.deadline_ms - 1
    node.on_heartbeat(N1, heartbeat(3), later_ms)
    assert transcript(node) == ["heard 3 round 0 → n1"]
    assert node.deadline_ms >= later_ms + TIMEOUT_MS


def test_a_heartbeat_of_a_higher_term_is_followed_at_once() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    node.on_heartbeat(N2, heartbeat(5), START_MS + 1)
    assert transcript(node) == ["persist 5 n2", "follower in 5 of -", "follower in 5 of n2", "heard 5 round 0 → n2"]


def test_two_leaders_of_one_term_stop_the_node_that_sees_them() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    with pytest.raises(AssertionError, match="n2 and n1 lead term 3"):
        node.on_heartbeat(N2, heartbeat(3), START_MS)


def test_a_leader_that_hears_another_of_its_own_term_stops() -> None:
    leader = make_leader(N0, term=3)
    with pytest.raises(AssertionError, match="n1 leads term 3, and so do I"):
        leader.on_heartbeat(N1, heartbeat(3), START_MS)


def test_a_restarted_follower_changes_neither_leader_nor_term() -> None:
    node = make_node(N0, term=3, vote=N1)
    node.on_heartbeat(N1, heartbeat(3), START_MS)
    assert transcript(node) == ["follower in 3 of n1", "heard 3 round 0 → n1"]


# Timers that fire late -----------------------------------------------------------------------------------------------


def test_a_late_election_timer_is_forgiven_once() -> None:
    node = make_node(N0)
    late_ms = node.deadline_ms + HEARTBEAT_MS
    node.tick(late_ms)
    assert transcript(node) == []
    assert node.deadline_ms >= late_ms + TIMEOUT_MS
    node.tick(node.deadline_ms + HEARTBEAT_MS)
    assert transcript(node)[0] == "candidate in 0 of -"


def test_a_leader_heard_after_a_late_timer_earns_forgiveness_anew() -> None:
    node = make_node(N0)
    for _ in range(5):
        node.tick(node.deadline_ms + HEARTBEAT_MS)
        node.on_heartbeat(N1, heartbeat(1), node.deadline_ms - 1)
    node.tick(node.deadline_ms + HEARTBEAT_MS)
    assert node.role is Role.FOLLOWER


def test_a_timer_that_is_hardly_late_is_not_late() -> None:
    node = make_node(N0)
    node.tick(node.deadline_ms + HEARTBEAT_MS / 2 - 1)
    assert node.role is Role.CANDIDATE


def test_a_leader_that_stood_still_gives_its_followers_that_time_again() -> None:
    leader = make_leader(N0, term=3)
    stood_still_ms = leader.deadline_ms + 10 * TIMEOUT_MS
    leader.tick(stood_still_ms)
    assert leader.role is Role.LEADER
    assert transcript(leader)[0] == "heartbeat 3 commit 0 round 0 → n1"
    while leader.role is Role.LEADER:
        now_ms = tick(leader)
    assert stood_still_ms + TIMEOUT_MS - HEARTBEAT_MS <= now_ms <= stood_still_ms + TIMEOUT_MS


def test_a_call_before_the_deadline_does_nothing() -> None:
    node = make_node(N0)
    node.tick(node.deadline_ms - 0.001)
    assert transcript(node) == []
