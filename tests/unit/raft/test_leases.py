"""Leases: how long a leader may answer reads alone, who promises that, and what ends it.

The harness's shortest election timeout is 400 ms, and clocks may drift by 5 %: a lease is 380 ms long.
"""

from __future__ import annotations

import pytest

from dledger.common.types import NodeId, Position, Term
from dledger.raft.messages import TakeLeadership, VoteResult
from dledger.raft.raft_node import RaftNode
from tests.unit.raft.harness import (
    GROUP,
    N0,
    N1,
    N2,
    START_MS,
    TIMINGS,
    LogEnd,
    answers,
    follow,
    heard,
    heartbeat,
    make_leader,
    make_node,
    members,
    now_of,
    point,
    transcript,
    vote_request,
    vote_response,
)

TIMEOUT_MS = TIMINGS.election_timeout_min_ms
LEASE_MS = TIMEOUT_MS * (1 - TIMINGS.max_clock_drift)


def ready_leader(count: int = 3, *, lease_reads: bool = True) -> RaftNode:
    """It has committed in its term; its first round, sent when it was elected, is not answered yet."""
    log = LogEnd()
    leader = make_leader(N0, membership=members(count), log=log, lease_reads=lease_reads)
    log.last = point(1, 1)
    assert leader.leadership is not None
    for progress in leader.leadership.followers.values():
        progress.match = Position(1)
    leader.advance(Position(1), now_of(leader))
    assert leader.is_ready
    leader.take_effects()
    return leader


def answer(leader: RaftNode, peer: NodeId, now_ms: float, *, keeps_lease: bool = True) -> None:
    """``peer`` answers the last round."""
    assert leader.leadership is not None
    leader.on_heartbeat_response(peer, heard(leader.term, leader.leadership._round, keeps_lease=keeps_lease), now_ms)


def leased(count: int = 3) -> tuple[RaftNode, float]:
    """A leader with a lease, and when the round it rests on was sent."""
    leader = ready_leader(count)
    sent_ms = now_of(leader)
    for peer in leader.membership.others(N0)[: count // 2]:
        answer(leader, peer, sent_ms + 30)
    return leader, sent_ms


# How long ------------------------------------------------------------------------------------------------------------


def test_a_lease_runs_from_when_the_round_was_sent_and_not_from_its_answers() -> None:
    leader, sent_ms = leased()
    assert leader.has_lease(sent_ms + LEASE_MS - 1)
    assert not leader.has_lease(sent_ms + LEASE_MS)


def test_a_lease_is_shorter_than_the_shortest_election_timeout_by_the_drift() -> None:
    leader, sent_ms = leased()
    assert leader.leadership is not None
    assert leader.leadership.lease_until_ms == sent_ms + 0.95 * TIMEOUT_MS


def test_every_heartbeat_is_a_round_that_prolongs_it() -> None:
    leader, _ = leased()
    now_ms = leader.deadline_ms
    leader.tick(now_ms)
    answer(leader, N2, now_ms + 50)
    assert leader.has_lease(now_ms + LEASE_MS - 1)


def test_a_round_that_no_quorum_answered_is_no_lease() -> None:
    leader = ready_leader(5)
    answer(leader, N1, now_of(leader))
    assert not leader.has_lease(now_of(leader) + 1)
    answer(leader, N2, now_of(leader))
    assert leader.has_lease(now_of(leader) + 1)


def test_a_voter_that_does_not_promise_is_no_part_of_it() -> None:
    """Where leases are on at some nodes only, as in a rolling restart, reads take a round."""
    leader = ready_leader()
    for peer in (N1, N2):
        answer(leader, peer, now_of(leader), keeps_lease=False)
    assert not leader.has_lease(now_of(leader) + 1)
    assert transcript(leader) == ["reads confirmed 1"]


def test_a_node_in_doubt_or_a_learner_is_no_part_of_it() -> None:
    leader = ready_leader()
    leader.doubt(N1)
    answer(leader, N1, now_of(leader))
    assert not leader.has_lease(now_of(leader) + 1)


def test_a_sole_voter_has_one_by_itself() -> None:
    leader = ready_leader(1)
    assert leader.has_lease(START_MS + 1)


def test_an_answer_to_a_round_long_ago_is_no_lease() -> None:
    leader, sent_ms = leased()
    leader.on_heartbeat_response(N2, heard(1, 1, keeps_lease=True), sent_ms + 2 * TIMEOUT_MS)
    assert not leader.has_lease(sent_ms + 2 * TIMEOUT_MS)


def test_time_in_which_the_process_stood_still_is_not_forgiven() -> None:
    leader, sent_ms = leased()
    late_ms = sent_ms + 2 * TIMEOUT_MS
    leader.tick(late_ms)
    assert leader.leadership is not None
    assert not leader.has_lease(late_ms)


def test_there_is_none_before_the_term_has_committed() -> None:
    leader = make_leader(N0, lease_reads=True)
    answer(leader, N1, now_of(leader))
    assert not leader.has_lease(now_of(leader) + 1)


def test_there_is_none_where_they_are_off() -> None:
    leader = ready_leader(lease_reads=False)
    leader.begin_read_round(now_of(leader))
    answer(leader, N1, now_of(leader), keeps_lease=False)
    assert "reads confirmed 1" in transcript(leader)
    assert not leader.has_lease(now_of(leader) + 1)


# What ends it --------------------------------------------------------------------------------------------------------


def test_a_handover_drops_it_before_the_target_is_told() -> None:
    log = LogEnd()
    leader, sent_ms = leased()
    leader._log = log
    log.last = point(9, 1)
    leader.begin_transfer(N1, Position(1), sent_ms + 40)
    assert transcript(leader)[-1] != "take 1 at 9 → n1"
    assert not leader.has_lease(sent_ms + 41)


def test_a_handover_that_told_nobody_gives_it_back() -> None:
    leader, sent_ms = leased()
    leader._log = LogEnd(point(9, 1))
    leader.begin_transfer(N1, Position(1), sent_ms + 40)
    leader.abort_transfer()
    assert leader.has_lease(sent_ms + 41)


def test_after_a_take_was_sent_there_is_none_in_the_term_again() -> None:
    """It may be obeyed late, and lifts the promise of everyone who hears of it."""
    leader, sent_ms = leased()
    leader.begin_transfer(N1, Position(1), sent_ms + 40)
    assert "take 1 at 1 → n1" in transcript(leader)
    leader.abort_transfer()
    now_ms = leader.deadline_ms
    leader.tick(now_ms)
    answer(leader, N2, now_ms)
    assert not leader.has_lease(now_ms + 1)


def test_a_leader_that_is_no_voter_any_more_has_none() -> None:
    """A sole voter that remains stands at once: it waits for nobody's lease."""
    leader, sent_ms = leased()
    leader.set_membership(members(3, without=[N0]), sent_ms + 40)
    assert not leader.has_lease(sent_ms + 41)


def test_a_leader_that_steps_down_has_none() -> None:
    leader, sent_ms = leased()
    leader.set_may_lead(False, sent_ms + 40)
    assert not leader.has_lease(sent_ms + 41)


# Who promises --------------------------------------------------------------------------------------------------------


def verdict(node: RaftNode, candidate: NodeId, term: int, now_ms: float, **request: object) -> VoteResult:
    node.on_vote_request(candidate, vote_request(term, **request), now_ms)  # type: ignore[arg-type]
    return answers(node)[0].result


def settled(node_id: NodeId = N1) -> tuple[RaftNode, float]:
    """A follower of n0 in term 3, long after its start; when it heard it last."""
    node = make_node(node_id, lease_reads=True)
    heard_ms = START_MS + 10 * TIMEOUT_MS
    follow(node, N0, term=3, now_ms=heard_ms)
    return node, heard_ms


def test_a_follower_promises_its_leader_and_nobody_else() -> None:
    node, heard_ms = settled()
    node.on_heartbeat(N0, heartbeat(3, round_number=7), heard_ms)
    assert transcript(node) == ["heard 3 round 7 keeping the lease → n0"]
    node.on_heartbeat(N2, heartbeat(2, round_number=8), heard_ms)
    assert transcript(node) == ["heard 3 round 8 → n2"]


@pytest.mark.parametrize("is_pre_vote", [True, False])
def test_what_was_promised_is_kept_for_its_time_and_no_longer(*, is_pre_vote: bool) -> None:
    node, heard_ms = settled()
    late_ms = heard_ms + TIMEOUT_MS
    assert verdict(node, N2, 4, late_ms - 1, is_pre_vote=is_pre_vote) is VoteResult.ALREADY_HAS_LEADER
    assert verdict(node, N2, 4, late_ms, is_pre_vote=is_pre_vote) is VoteResult.ACCEPT


def test_a_closed_connection_ends_no_promise_and_no_wait() -> None:
    node, heard_ms = settled()
    deadline_ms = node.deadline_ms
    node.on_peer_disconnected(N0, heard_ms + 5)
    assert node.deadline_ms == deadline_ms >= heard_ms + TIMEOUT_MS
    assert verdict(node, N2, 4, heard_ms + 6) is VoteResult.ALREADY_HAS_LEADER


def test_a_higher_term_that_an_answer_brings_ends_no_promise() -> None:
    node, heard_ms = settled()
    node.on_vote_response(N2, vote_response(3, VoteResult.EXPIRED_VOTE_TERM, voter_term=5), heard_ms + 5)
    assert node.term == 5
    node.take_effects()
    assert verdict(node, N2, 6, heard_ms + 6) is VoteResult.ALREADY_HAS_LEADER
    assert node.deadline_ms >= heard_ms + TIMEOUT_MS


def test_a_node_that_has_just_started_may_have_promised_before() -> None:
    node = make_node(N1, term=3, lease_reads=True)
    assert verdict(node, N2, 4, START_MS + TIMEOUT_MS - 1) is VoteResult.ALREADY_HAS_LEADER
    assert node.deadline_ms >= START_MS + TIMEOUT_MS
    assert node.term == 3
    assert verdict(node, N2, 4, START_MS + TIMEOUT_MS) is VoteResult.ACCEPT


def test_a_node_that_has_just_started_votes_at_once_where_leases_are_off() -> None:
    assert verdict(make_node(N1, term=3), N2, 4, START_MS) is VoteResult.ACCEPT


def test_the_leaders_own_word_of_handover_lifts_the_promise() -> None:
    node, heard_ms = settled()
    assert verdict(node, N2, 4, heard_ms + 1, transfer_from=N0) is VoteResult.ACCEPT


def test_the_target_of_a_handover_stands_in_spite_of_its_own_promise() -> None:
    node, heard_ms = settled()
    node.on_take_leadership(N0, TakeLeadership(GROUP, Term(3), Position(0)), heard_ms + 1)
    assert "vote for 4 handed over by n0 → n2" in transcript(node)
