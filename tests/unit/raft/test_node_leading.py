"""A leader's decisions, and a follower's commit, as transcripts (see harness.py for how to read them)."""

from __future__ import annotations

import pytest

from dledger.common.types import NodeId, Position, Role, Term
from dledger.raft.messages import TakeLeadership
from dledger.raft.raft_node import RaftNode
from tests.unit.raft.harness import (
    GROUP,
    N0,
    N1,
    N2,
    START_MS,
    TIMINGS,
    LogEnd,
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

LEARNER = NodeId("l0")
HEARTBEAT_MS = TIMINGS.heartbeat_interval_ms
TIMEOUT_MS = TIMINGS.election_timeout_min_ms


def tick(node: RaftNode) -> float:
    """Lets time pass to the node's next deadline."""
    now_ms = node.deadline_ms
    node.tick(now_ms)
    return now_ms


# A leader and its quorum ---------------------------------------------------------------------------------------------


def test_a_leader_that_sees_a_higher_term_in_an_answer_steps_down() -> None:
    leader = make_leader(N0, term=3)
    leader.on_heartbeat_response(N1, heard(5), now_of(leader))
    assert transcript(leader) == ["persist 5 -", "follower in 5 of -"]
    assert leader.leadership is None


def test_a_leader_that_sees_a_higher_term_in_a_push_answer_steps_down() -> None:
    leader = make_leader(N0, term=3)
    assert leader.hear_follower(N1, Term(5), now_of(leader)) is None
    assert leader.leadership is None


def test_a_leader_that_loses_both_followers_is_candidate_in_the_same_term_within_four_heartbeats() -> None:
    leader = make_leader(N0, term=3)
    silent_since_ms = now_of(leader)
    heartbeats = 0
    while leader.role is Role.LEADER:
        now_ms = tick(leader)
        heartbeats += 1
    assert heartbeats == 4
    assert now_ms == silent_since_ms + 4 * HEARTBEAT_MS
    assert transcript(leader)[-1] == "candidate in 3 of -"
    assert leader.term == 3


def test_a_leader_heard_by_one_of_two_followers_stays() -> None:
    leader = make_leader(N0, term=3)
    for _ in range(20):
        now_ms = tick(leader)
        leader.on_heartbeat_response(N2, heard(3), now_ms)
    assert leader.role is Role.LEADER


def test_a_leader_heard_only_by_a_node_in_doubt_steps_down() -> None:
    leader = make_leader(N0, term=3, doubted=[N2], membership=members(3))
    while leader.role is Role.LEADER:
        now_ms = tick(leader)
        if leader.role is Role.LEADER:
            leader.on_heartbeat_response(N2, heard(3), now_ms)
    assert now_ms <= START_MS + TIMINGS.election_timeout_max_ms + TIMEOUT_MS


def test_a_leader_that_stepped_down_leads_again_in_a_higher_term_only() -> None:
    leader = make_leader(N0, term=3)
    while leader.role is Role.LEADER:
        tick(leader)
    now_ms = tick(leader)
    leader.on_vote_response(N1, vote_response(4, voter_term=3, is_pre_vote=True), now_ms)
    leader.on_vote_response(N1, vote_response(4), now_ms)
    assert (leader.role, leader.term) == (Role.LEADER, 4)


def test_answers_of_another_term_or_of_strangers_keep_no_leader_alive() -> None:
    leader = make_leader(N0, term=3)
    while leader.role is Role.LEADER:
        now_ms = tick(leader)
        leader.on_heartbeat_response(N1, heard(2), now_ms)
        leader.on_heartbeat_response(NodeId("n9"), heard(3), now_ms)
    assert leader.term == 3


# Commit --------------------------------------------------------------------------------------------------------------


def acknowledge(leader: RaftNode, peer: NodeId, position: int) -> None:
    leadership = leader.hear_follower(peer, leader.term, now_of(leader))
    assert leadership is not None
    leadership.followers[peer].match, leadership.followers[peer].is_compared = Position(position), True
    leader.advance(leader._log.last.position, now_of(leader))


def test_nothing_is_committed_before_a_majority_holds_it() -> None:
    log = LogEnd()
    leader = make_leader(N0, log=log, membership=members(5))
    log.last = point(1, 1)
    leader.advance(Position(1), now_of(leader))
    acknowledge(leader, N1, 1)
    assert transcript(leader) == []
    acknowledge(leader, N2, 1)
    assert transcript(leader) == ["committed 1"]


def test_a_single_voter_commits_what_is_durable_and_no_more() -> None:
    log = LogEnd()
    node = make_node(N0, membership=members(1), log=log)
    node.tick(START_MS)
    node.take_effects()
    log.last = point(3, 1)
    node.advance(Position(2), START_MS)
    assert transcript(node) == ["committed 2"]


def test_frames_of_an_earlier_term_are_committed_with_one_of_its_own_and_never_by_counting() -> None:
    """Raft §5.4.2, figure 8: what a majority holds of an old term may still be overwritten."""
    log = LogEnd(point(2, 2))
    leader = make_leader(N0, term=4, log=log)
    log.last = point(3, 4)
    acknowledge(leader, N1, 2)
    assert transcript(leader) == []
    assert (leader.commit_position, leader.is_ready) == (0, False)
    acknowledge(leader, N1, 3)
    assert transcript(leader) == ["committed 3"]
    assert leader.is_ready


def test_the_acknowledgement_of_a_node_in_doubt_commits_nothing() -> None:
    log = LogEnd()
    leader = make_leader(N0, log=log, doubted=[N1])
    log.last = point(1, 1)
    acknowledge(leader, N1, 1)
    assert transcript(leader) == []
    acknowledge(leader, N2, 1)
    assert transcript(leader) == ["committed 1"]


def test_doubt_that_comes_while_leading_counts_at_once() -> None:
    log = LogEnd()
    leader = make_leader(N0, log=log)
    leader.doubt(N1)
    log.last = point(1, 1)
    acknowledge(leader, N1, 1)
    assert transcript(leader) == []


def test_a_follower_commits_what_is_known_to_equal_the_leaders_log_and_no_more() -> None:
    node = make_node(N0, log=LogEnd(point(9, 2)))
    node.on_heartbeat(N1, heartbeat(3, commit=7), START_MS)
    assert node.commit_position == 0
    node.on_matched(Position(5))
    node.on_heartbeat(N1, heartbeat(3, commit=7), START_MS)
    assert node.commit_position == 5
    node.on_matched(Position(9))
    node.on_heartbeat(N1, heartbeat(3, commit=7), START_MS)
    assert node.commit_position == 7


def test_what_equalled_an_old_leaders_log_is_compared_anew() -> None:
    node = make_node(N0, log=LogEnd(point(9, 2)))
    follow(node, N1, term=3)
    node.on_matched(Position(9))
    node.on_heartbeat(N2, heartbeat(4, commit=9), START_MS)
    assert node.commit_position == 0


def test_the_commit_position_never_falls() -> None:
    node = make_node(N0, log=LogEnd(point(9, 2)), commit=6)
    node.on_heartbeat(N1, heartbeat(3, commit=2), START_MS)
    assert node.commit_position == 6


# Read rounds ---------------------------------------------------------------------------------------------------------


def test_a_read_round_asks_all_and_is_confirmed_by_a_quorum() -> None:
    leader = make_leader(N0, membership=members(5))
    assert leader.begin_read_round(now_of(leader)) == 1
    assert transcript(leader) == [f"heartbeat 1 commit 0 round 1 → n{i}" for i in range(1, 5)]
    leader.on_heartbeat_response(N1, heard(1, 1), now_of(leader))
    assert transcript(leader) == []
    leader.on_heartbeat_response(N2, heard(1, 1), now_of(leader))
    assert transcript(leader) == ["reads confirmed 1"]


def test_a_single_voter_confirms_its_reads_itself() -> None:
    node = make_node(N0, membership=members(1))
    node.tick(START_MS)
    node.take_effects()
    node.begin_read_round(START_MS)
    assert transcript(node) == ["reads confirmed 1"]


def test_every_later_heartbeat_asks_for_the_last_round_again() -> None:
    leader = make_leader(N0)
    leader.begin_read_round(now_of(leader))
    leader.take_effects()
    tick(leader)
    assert transcript(leader)[0] == "heartbeat 1 commit 0 round 1 → n1"


def test_a_leader_that_was_replaced_confirms_nothing() -> None:
    leader = make_leader(N0, term=3)
    leader.begin_read_round(now_of(leader))
    leader.take_effects()
    leader.on_heartbeat_response(N1, heard(4, 1), now_of(leader))
    leader.on_heartbeat_response(N2, heard(3, 1), now_of(leader))
    assert "reads confirmed 1" not in transcript(leader)


# Transfer -------------------------------------------------------------------------------------------------------------


def take(node: RaftNode, leader: NodeId, term: int, position: int = 0) -> None:
    node.on_take_leadership(leader, TakeLeadership(GROUP, Term(term), Position(position)), START_MS)


def test_a_handover_waits_for_the_target_and_tells_it_once() -> None:
    log = LogEnd(point(5, 1))
    leader = make_leader(N0, term=2, log=log)
    leader.begin_transfer(N1, Position(5), now_of(leader))
    acknowledge(leader, N1, 4)
    acknowledge(leader, N2, 5)
    assert transcript(leader) == []
    acknowledge(leader, N1, 5)
    assert transcript(leader) == ["take 2 at 5 → n1"]
    acknowledge(leader, N1, 5)
    assert transcript(leader) == []


def test_the_target_stands_at_once_and_without_a_pre_vote() -> None:
    node = make_node(N1)
    follow(node, N0, term=2)
    take(node, N0, term=2)
    assert transcript(node) == [
        "candidate in 2 of -",
        "persist 3 n1",
        "candidate in 3 of -",
        "vote for 3 handed over by n0 → n0",
        "vote for 3 handed over by n0 → n2",
    ]


def test_the_old_leader_votes_for_its_successor_and_hears_how_it_ended() -> None:
    leader = make_leader(N0, term=2)
    leader.begin_transfer(N1, Position(0), now_of(leader))
    assert transcript(leader) == ["take 2 at 0 → n1"]
    leader.on_vote_request(N1, vote_request(3, transfer_from=N0), now_of(leader))
    assert transcript(leader) == ["persist 3 -", "follower in 3 of -", "persist 3 n1", "ACCEPT in 3 → n1"]
    leader.on_heartbeat(N1, heartbeat(3), now_of(leader))
    assert transcript(leader) == ["follower in 3 of n1", "transfer ended n1", "heard 3 round 0 → n1"]


def test_a_target_behind_does_not_stand() -> None:
    node = make_node(N1, log=LogEnd(point(4, 1)))
    follow(node, N0, term=2)
    take(node, N0, term=2, position=5)
    assert transcript(node) == []


@pytest.mark.parametrize(("sender", "term"), [(N2, 2), (N0, 1), (N0, 3)])
def test_only_ones_own_leader_hands_over_and_only_its_own_term(sender: NodeId, term: int) -> None:
    node = make_node(N1)
    follow(node, N0, term=2)
    take(node, sender, term)
    assert transcript(node) == []


def test_a_handover_that_comes_to_nothing_leaves_the_leader_leading() -> None:
    """H4: the leader goes on in its own term, and the target that failed follows it again."""
    leader = make_leader(N0, term=2)
    begun_ms = now_of(leader)
    leader.begin_transfer(N1, Position(0), begun_ms)
    assert leader.leadership is not None
    while leader.leadership.transfer is not None:
        now_ms = tick(leader)
        leader.on_heartbeat_response(N2, heard(2), now_ms)
    assert now_ms <= begun_ms + TIMINGS.election_timeout_max_ms + HEARTBEAT_MS
    assert "transfer ended -" in transcript(leader)
    assert (leader.role, leader.term) == (Role.LEADER, 2)


def test_a_candidate_of_a_failed_handover_that_comes_back_later_finds_its_place() -> None:
    """H4: a target stuck as a candidate of a higher term is followed up by everyone, not left behind."""
    target = make_node(N1)
    follow(target, N0, term=2)
    take(target, N0, term=2)
    leader = make_leader(N0, term=2)
    target.take_effects()
    target.on_heartbeat(N0, heartbeat(2), START_MS)
    assert transcript(target) == ["heard 3 round 0 → n0"]
    leader.on_heartbeat_response(N1, heard(3), now_of(leader))
    assert (leader.role, leader.term) == (Role.FOLLOWER, 3)
    now_ms = tick(leader)
    leader.on_vote_response(N1, vote_response(4, voter_term=3, is_pre_vote=True), now_ms)
    leader.on_vote_response(N1, vote_response(4), now_ms)
    assert (leader.role, leader.term) == (Role.LEADER, 4)


def test_a_leader_that_takes_over_again_itself_says_the_handover_failed() -> None:
    leader = make_leader(N0, term=2)
    leader.begin_transfer(N1, Position(0), now_of(leader))
    leader.on_heartbeat_response(N1, heard(3), now_of(leader))
    now_ms = tick(leader)
    leader.on_vote_response(N2, vote_response(4, voter_term=3, is_pre_vote=True), now_ms)
    leader.take_effects()
    leader.on_vote_response(N2, vote_response(4), now_ms)
    assert transcript(leader)[:2] == ["leader in 4 of n0", "transfer ended -"]


# When heartbeats are sent -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elected_ms", [20_000.0, 20_000.1, 20_037.5, 20_099.9])
def test_leaders_beat_at_multiples_of_the_interval_whenever_they_were_elected(elected_ms: float) -> None:
    leader = make_node(N0)
    leader.deadline_ms = elected_ms
    leader.tick(elected_ms)
    for is_pre_vote in (True, False):
        voter_term = 0 if is_pre_vote else 1
        leader.on_vote_response(N1, vote_response(1, voter_term=voter_term, is_pre_vote=is_pre_vote), elected_ms)
    assert leader.role is Role.LEADER
    beats = [leader.deadline_ms]
    for late_ms in (0.0, 20.0, HEARTBEAT_MS / 2 + 1):  # the last is forgiven
        leader.tick(leader.deadline_ms + late_ms)
        beats.append(leader.deadline_ms)
    assert beats == [20_100.0, 20_200.0, 20_300.0, 20_400.0]
    assert leader.role is Role.LEADER
