"""How votes are judged, refusal by refusal, and how a candidate counts."""

from __future__ import annotations

import pytest

from dledger.common.types import GENESIS, LogPoint, NodeId, Position, Role, Term
from dledger.raft.election import Ballot, VoteStage, judge_log, judge_membership, judge_vote
from dledger.raft.messages import NOBODY, VoteRequest, VoteResult
from dledger.raft.raft_node import RaftNode
from dledger.raft.state import VoteBlocker
from tests.unit.raft.harness import (
    N0,
    N1,
    N2,
    N3,
    N4,
    START_MS,
    TIMINGS,
    LogEnd,
    answers,
    follow,
    make_leader,
    make_node,
    members,
    now_of,
    point,
    transcript,
    vote_request,
    vote_response,
)

STRANGER = NodeId("n9")
LEARNER = NodeId("l0")


def verdict(node: RaftNode, candidate: NodeId, request: VoteRequest, now_ms: float = START_MS) -> VoteResult:
    node.on_vote_request(candidate, request, now_ms)
    [answer] = answers(node)
    assert (answer.request_term, answer.is_pre_vote) == (request.term, request.is_pre_vote)
    assert answer.term == node.term
    return answer.result


# Counting ------------------------------------------------------------------------------------------------------------


def test_a_ballot_passes_with_a_majority_and_not_before() -> None:
    ballot = Ballot(VoteStage.WAIT_TO_VOTE_NEXT, Term(1), members(5))
    for voter, passed in ((N0, False), (N1, False), (N2, True)):
        ballot.record(voter, VoteResult.ACCEPT)
        assert ballot.passed is passed


def test_a_ballot_is_lost_when_a_majority_cannot_accept_any_more() -> None:
    ballot = Ballot(VoteStage.WAIT_TO_VOTE_NEXT, Term(1), members(5))
    for voter, lost in ((N1, False), (N2, False), (N3, True)):
        ballot.record(voter, VoteResult.ALREADY_VOTED)
        assert ballot.lost is lost


def test_a_voter_answers_once_and_its_first_answer_stands() -> None:
    ballot = Ballot(VoteStage.WAIT_TO_VOTE_NEXT, Term(1), members(3))
    ballot.record(N0, VoteResult.ACCEPT)
    ballot.record(N0, VoteResult.ACCEPT)
    ballot.record(N1, VoteResult.ALREADY_VOTED)
    ballot.record(N1, VoteResult.ACCEPT)
    assert not ballot.passed


def test_what_is_not_a_voter_is_not_counted() -> None:
    ballot = Ballot(VoteStage.WAIT_TO_VOTE_NEXT, Term(1), members(3, learners=[LEARNER]))
    for voter in (N0, LEARNER, STRANGER):
        ballot.record(voter, VoteResult.ACCEPT)
    assert not ballot.passed


# Judging, rule by rule -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidate", "result"),
    [
        (N0, VoteResult.UNEXPECTED_LEADER),
        (STRANGER, VoteResult.UNKNOWN_LEADER),
        (LEARNER, VoteResult.UNKNOWN_LEADER),
        (N1, VoteResult.ACCEPT),
    ],
)
def test_only_another_voter_is_heard(candidate: NodeId, result: VoteResult) -> None:
    assert judge_membership(N0, candidate, members(3, learners=[LEARNER]), is_ahead=False, is_behind=True) is result


@pytest.mark.parametrize(
    ("theirs", "result"),
    [
        (point(5, 3), VoteResult.ACCEPT),
        (point(6, 3), VoteResult.ACCEPT),
        (point(1, 4), VoteResult.ACCEPT),
        (point(4, 3), VoteResult.SMALL_LEDGER_END_INDEX),
        (point(9, 2), VoteResult.EXPIRED_LEDGER_TERM),
        (GENESIS, VoteResult.EXPIRED_LEDGER_TERM),
    ],
)
def test_a_log_is_at_least_as_complete_by_its_last_term_then_by_its_length(
    theirs: LogPoint, result: VoteResult
) -> None:
    assert judge_log(vote_request(9, theirs), point(5, 3)) is result


def test_a_vote_is_free_or_already_the_candidates() -> None:
    assert judge_vote(NOBODY, N1) is VoteResult.ACCEPT
    assert judge_vote(N1, N1) is VoteResult.ACCEPT
    assert judge_vote(N2, N1) is VoteResult.ALREADY_VOTED


# Every refusal at a node ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_pre_vote", [True, False])
@pytest.mark.parametrize("candidate", [STRANGER, LEARNER])
def test_a_stranger_or_a_learner_gets_no_vote_and_raises_no_term(candidate: NodeId, *, is_pre_vote: bool) -> None:
    log = LogEnd(point(1, 1))
    node = make_node(membership=members(3, learners=[LEARNER]), term=4, log=log)
    assert verdict(node, candidate, vote_request(9, is_pre_vote=is_pre_vote)) is VoteResult.UNKNOWN_LEADER
    assert node.term == 4


def test_a_learner_whose_log_is_needed_gets_the_vote_of_a_voter_that_is_level() -> None:
    """Which need not be able to stand itself."""
    node = make_node(membership=members(3, learners=[LEARNER]), term=4, log=LogEnd(point(5, 3)))
    assert verdict(node, STRANGER, vote_request(9, point(5, 3))) is VoteResult.UNKNOWN_LEADER
    assert verdict(node, LEARNER, vote_request(9, point(5, 3))) is VoteResult.ACCEPT


def test_my_own_id_from_elsewhere_gets_no_vote() -> None:
    node = make_node(N0, term=4)
    assert verdict(node, N0, vote_request(9)) is VoteResult.UNEXPECTED_LEADER
    assert node.term == 4


def test_a_node_that_came_back_as_another_gets_no_vote() -> None:
    node = make_node(N0)
    node.doubt(N1)
    assert verdict(node, N1, vote_request(9)) is VoteResult.UNKNOWN_LEADER
    assert node.term == 0


@pytest.mark.parametrize("is_pre_vote", [True, False])
def test_a_node_that_hears_its_leader_refuses_without_taking_the_term(*, is_pre_vote: bool) -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    almost_ms = START_MS + TIMINGS.election_timeout_min_ms - 1
    request = vote_request(9, is_pre_vote=is_pre_vote)
    assert verdict(node, N2, request, almost_ms) is VoteResult.ALREADY_HAS_LEADER
    assert (node.term, node.leader_id) == (3, N1)


def test_a_leader_that_hears_its_quorum_refuses_too() -> None:
    leader = make_leader(N0, term=3)
    assert verdict(leader, N2, vote_request(9), now_of(leader) + 1) is VoteResult.ALREADY_HAS_LEADER
    assert leader.leadership is not None


def test_a_smaller_term_is_refused_with_the_larger_one() -> None:
    node = make_node(term=4)
    assert verdict(node, N1, vote_request(3)) is VoteResult.EXPIRED_VOTE_TERM


def test_a_pre_vote_must_ask_for_a_term_above_the_voters() -> None:
    node = make_node(term=4)
    assert verdict(node, N1, vote_request(4, is_pre_vote=True)) is VoteResult.EXPIRED_VOTE_TERM
    assert verdict(node, N1, vote_request(5, is_pre_vote=True)) is VoteResult.ACCEPT


def test_a_smaller_last_term_is_refused_whatever_the_length() -> None:
    node = make_node(term=3, log=LogEnd(point(5, 3)))
    assert verdict(node, N1, vote_request(4, point(50, 2))) is VoteResult.EXPIRED_LEDGER_TERM


def test_a_shorter_log_of_the_same_last_term_is_refused() -> None:
    node = make_node(term=3, log=LogEnd(point(5, 3)))
    assert verdict(node, N1, vote_request(4, point(4, 3))) is VoteResult.SMALL_LEDGER_END_INDEX


def test_a_second_candidate_of_the_term_is_refused_and_the_first_is_told_again() -> None:
    node = make_node()
    assert verdict(node, N1, vote_request(1)) is VoteResult.ACCEPT
    assert verdict(node, N2, vote_request(1)) is VoteResult.ALREADY_VOTED
    assert verdict(node, N1, vote_request(1)) is VoteResult.ACCEPT


def test_a_candidate_does_not_vote_for_a_rival_of_its_own_term() -> None:
    node = make_node(N0, term=1, vote=N0)
    assert verdict(node, N1, vote_request(1)) is VoteResult.ALREADY_VOTED


def test_a_learner_does_not_vote_but_takes_the_term() -> None:
    node = make_node(LEARNER, membership=members(3, learners=[LEARNER]), term=1)
    assert verdict(node, N1, vote_request(2)) is VoteResult.NOT_A_VOTER
    assert node.term == 2


def test_a_node_that_cannot_rely_on_its_promises_does_not_vote() -> None:
    node = make_node(N0)
    node.set_may_vote(False, START_MS)
    node.take_effects()
    assert verdict(node, N1, vote_request(2)) is VoteResult.NOT_A_VOTER
    assert verdict(node, N1, vote_request(3, is_pre_vote=True)) is VoteResult.NOT_A_VOTER
    node.set_may_vote(True, START_MS)
    node.take_effects()
    assert verdict(node, N1, vote_request(3)) is VoteResult.ACCEPT


def test_a_disk_that_the_log_does_not_name_votes_for_a_log_that_is_ahead_alone() -> None:
    node = make_node(N0)
    node.set_may_vote(False, START_MS, VoteBlocker.OTHER_DISK)
    node.take_effects()
    assert verdict(node, N1, vote_request(2)) is VoteResult.NOT_A_VOTER
    assert verdict(node, N1, vote_request(3, last=point(9, 1))) is VoteResult.ACCEPT
    node.set_may_vote(False, START_MS, VoteBlocker.OWES_CATCH_UP)
    node.take_effects()
    assert verdict(node, N2, vote_request(4, last=point(9, 1))) is VoteResult.NOT_A_VOTER


@pytest.mark.parametrize(
    ("commit", "answer"), [(5, VoteResult.SMALL_LEDGER_END_INDEX), (4, VoteResult.NOT_A_VOTER)], ids=["lacks", "has"]
)
def test_a_disk_that_the_log_does_not_name_tells_who_lacks_what_is_committed(commit: int, answer: VoteResult) -> None:
    node = make_node(N0, log=LogEnd(point(5, 2)), commit=commit)
    node.set_may_vote(False, START_MS, VoteBlocker.OTHER_DISK)
    node.take_effects()
    assert verdict(node, N1, vote_request(3, last=point(4, 2), is_pre_vote=True)) is answer


def test_an_empty_log_gets_no_vote_of_an_empty_one_before_the_founders_have_met() -> None:
    node = make_node(N0)
    node.set_may_found(False, START_MS)
    assert verdict(node, N1, vote_request(2)) is VoteResult.NOT_FOUNDED
    node.set_may_found(True, START_MS)
    assert verdict(node, N1, vote_request(2)) is VoteResult.ACCEPT


def test_a_log_with_something_in_it_gets_the_vote_of_an_empty_one() -> None:
    node = make_node(N0)
    node.set_may_found(False, START_MS)
    assert verdict(node, N1, vote_request(2, LogPoint(Position(1), Term(1), 0))) is VoteResult.ACCEPT


def test_a_node_with_an_empty_log_does_not_stand_before_the_founders_have_met() -> None:
    node = make_node(N0)
    node.set_may_found(False, START_MS)
    node.tick(node.deadline_ms)
    assert node.ballot is None
    node.set_may_found(True, START_MS)
    node.tick(node.deadline_ms)
    assert node.ballot is not None


# The order of judgement: each pair of faults is answered by the earlier rule -----------------------------------------


def test_identity_comes_before_stickiness() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    assert verdict(node, STRANGER, vote_request(9)) is VoteResult.UNKNOWN_LEADER


def test_stickiness_comes_before_a_higher_term() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    assert verdict(node, N2, vote_request(4)) is VoteResult.ALREADY_HAS_LEADER
    assert node.term == 3


def test_stickiness_does_not_hide_an_expired_term() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    assert verdict(node, N2, vote_request(2)) is VoteResult.EXPIRED_VOTE_TERM


def test_the_term_comes_before_the_log() -> None:
    node = make_node(term=3, log=LogEnd(point(5, 3)))
    assert verdict(node, N1, vote_request(2, point(1, 1))) is VoteResult.EXPIRED_VOTE_TERM


def test_a_higher_term_is_adopted_and_persisted_even_when_the_log_is_refused() -> None:
    node = make_node(term=3, log=LogEnd(point(5, 3)))
    node.on_vote_request(N1, vote_request(7, point(4, 3)), START_MS)
    assert transcript(node) == ["persist 7 -", "follower in 7 of -", "SMALL_LEDGER_END_INDEX in 7 → n1"]


def test_the_log_comes_before_the_vote() -> None:
    node = make_node(term=3, vote=N2, log=LogEnd(point(5, 3)))
    assert verdict(node, N1, vote_request(3, point(4, 3))) is VoteResult.SMALL_LEDGER_END_INDEX


# What a vote changes, and what a pre-vote does not -------------------------------------------------------------------


def test_a_vote_is_persisted_before_it_is_told() -> None:
    node = make_node()
    node.on_vote_request(N1, vote_request(1), START_MS)
    assert transcript(node) == ["persist 1 -", "follower in 1 of -", "persist 1 n1", "ACCEPT in 1 → n1"]


def test_a_vote_told_again_is_not_persisted_again() -> None:
    node = make_node(term=1, vote=N1)
    node.on_vote_request(N1, vote_request(1), START_MS)
    assert transcript(node) == ["ACCEPT in 1 → n1"]


def test_a_pre_vote_granted_changes_nothing() -> None:
    node = make_node(term=3, vote=N2)
    before = (node.term, node.vote, node.role, node.leader_id, node.deadline_ms)
    node.on_vote_request(N1, vote_request(4, is_pre_vote=True), START_MS + 10)
    assert transcript(node) == ["ACCEPT in 3 → n1"]
    assert (node.term, node.vote, node.role, node.leader_id, node.deadline_ms) == before


def test_many_may_be_promised_a_pre_vote_of_one_term() -> None:
    node = make_node(N0, membership=members(5))
    for candidate in (N1, N2, N3, N4):
        assert verdict(node, candidate, vote_request(1, is_pre_vote=True)) is VoteResult.ACCEPT


def test_granting_a_vote_puts_off_ones_own_candidacy_and_refusing_does_not() -> None:
    node = make_node(term=1)
    late_ms = node.deadline_ms - 1
    assert verdict(node, N1, vote_request(1), late_ms) is VoteResult.ACCEPT
    deadline_ms = node.deadline_ms
    assert deadline_ms >= late_ms + TIMINGS.election_timeout_min_ms
    assert verdict(node, N2, vote_request(1), late_ms + 1) is VoteResult.ALREADY_VOTED
    assert node.deadline_ms == deadline_ms


def test_no_vote_is_given_twice_in_a_term_across_a_restart() -> None:
    """H1: what was promised is durable before it is told, so whoever comes back keeps it."""
    node = make_node(N0)
    node.on_vote_request(N1, vote_request(5), START_MS)
    persisted = (node.term, node.vote)
    again = make_node(N0, term=persisted[0], vote=persisted[1])
    assert verdict(again, N2, vote_request(5)) is VoteResult.ALREADY_VOTED
    assert verdict(again, N1, vote_request(5)) is VoteResult.ACCEPT


def test_a_log_that_reached_further_than_the_hard_state_lifts_the_term() -> None:
    node = make_node(N0, term=2, vote=N0, log=LogEnd(point(9, 4)))
    assert (node.term, node.vote) == (4, NOBODY)
    assert verdict(node, N1, vote_request(3, point(9, 4))) is VoteResult.EXPIRED_VOTE_TERM


# Stickiness and its end ----------------------------------------------------------------------------------------------


def test_stickiness_ends_with_the_shortest_election_timeout() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    after_ms = START_MS + TIMINGS.election_timeout_min_ms
    assert verdict(node, N2, vote_request(4), after_ms) is VoteResult.ACCEPT


def test_a_closed_connection_from_the_leader_ends_stickiness_and_asks_soon() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    node.on_peer_disconnected(N1, START_MS + 5)
    assert node.deadline_ms <= START_MS + 5 + TIMINGS.heartbeat_interval_ms
    assert verdict(node, N2, vote_request(4, is_pre_vote=True), START_MS + 6) is VoteResult.ACCEPT


def test_a_closed_connection_from_another_ends_nothing() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    deadline_ms = node.deadline_ms
    node.on_peer_disconnected(N2, START_MS + 5)
    assert node.deadline_ms == deadline_ms
    assert verdict(node, N2, vote_request(4), START_MS + 6) is VoteResult.ALREADY_HAS_LEADER


def test_a_leader_heard_again_is_heard() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    node.on_peer_disconnected(N1, START_MS + 5)
    follow(node, N1, term=3, now_ms=START_MS + 6)
    assert verdict(node, N2, vote_request(4), START_MS + 7) is VoteResult.ALREADY_HAS_LEADER


def test_the_leaders_own_word_of_handover_lifts_stickiness() -> None:
    node = make_node(N0)
    follow(node, N1, term=3)
    assert verdict(node, N2, vote_request(4, transfer_from=N1)) is VoteResult.ACCEPT


@pytest.mark.parametrize(("term", "leader"), [(4, N3), (5, N1), (9, N1)])
def test_the_word_of_another_leader_or_of_another_term_does_not(term: int, leader: NodeId) -> None:
    node = make_node(N0, membership=members(5))
    follow(node, N1, term=3)
    assert verdict(node, N2, vote_request(term, transfer_from=leader)) is VoteResult.ALREADY_HAS_LEADER


def test_a_handover_does_not_excuse_a_shorter_log() -> None:
    node = make_node(N0, term=3, log=LogEnd(point(5, 3)))
    follow(node, N1, term=3)
    assert verdict(node, N2, vote_request(4, point(4, 3), transfer_from=N1)) is VoteResult.SMALL_LEDGER_END_INDEX


# A log that is not complete enough -----------------------------------------------------------------------------------


def refused(node: RaftNode, *voters: NodeId, result: VoteResult = VoteResult.SMALL_LEDGER_END_INDEX) -> list[str]:
    """What a candidate does when these refuse its pre-vote."""
    node.tick(node.deadline_ms)
    transcript(node)
    for voter in voters:
        answer = vote_response(node.term + 1, result, voter_term=node.term, is_pre_vote=True)
        node.on_vote_response(voter, answer, node.deadline_ms - 1)
    return [line for line in transcript(node) if line.startswith("fetch")]


def test_a_candidate_whose_log_alone_is_refused_asks_for_what_it_lacks_when_others_had_their_chance() -> None:
    node = make_node(N0)
    assert refused(node, N1) == []
    assert refused(node, N1) == ["fetch the tail of n1"]
    assert refused(node, N1) == []
    assert refused(node, N1) == ["fetch the tail of n1"]


def test_every_third_time_it_asks_another_member_as_who_refuses_may_have_only_heard_of_what_it_wants() -> None:
    node = make_node(N0, membership=members(3, learners=[LEARNER]))
    asked = [line for _ in range(12) for line in refused(node, N1)]
    assert asked == [f"fetch the tail of {each}" for each in (N1, N1, LEARNER, N1, N1, N2)]


def test_a_candidate_that_has_no_majority_whatever_its_log_asks_nobody() -> None:
    node = make_node(N0, membership=members(5))
    assert [refused(node, N1) for _ in range(4)] == [[]] * 4


def test_a_candidate_that_is_refused_for_another_reason_asks_nobody() -> None:
    node = make_node(N0)
    assert [refused(node, N1, result=VoteResult.ALREADY_HAS_LEADER) for _ in range(4)] == [[]] * 4


def test_who_is_in_doubt_is_asked_too_that_it_was_admitted_anew_may_stand_there() -> None:
    node = make_node(N0)
    node.doubt(N1)
    assert refused(node, N1) == []
    assert refused(node, N1) == ["fetch the tail of n1"]


def test_who_is_in_doubt_gives_no_vote() -> None:
    node = make_node(N0)
    node.doubt(N1)
    assert [refused(node, N1, result=VoteResult.ACCEPT) for _ in range(4)] == [[]] * 4
    assert node.role is Role.CANDIDATE


def test_who_may_have_acknowledged_more_than_it_has_votes_for_no_log_that_ends_before_that() -> None:
    node = make_node(N0, term=3, log=LogEnd(point(5, 3)))
    node.know_tail(point(7, 2), START_MS)
    assert not node.lacks_end, "a later term is more than a longer log"
    node.know_tail(point(7, 3), START_MS)
    assert verdict(node, N1, vote_request(4, point(6, 3))) is VoteResult.SMALL_LEDGER_END_INDEX
    assert verdict(node, N1, vote_request(4, point(7, 3))) is VoteResult.ACCEPT


def test_who_may_have_acknowledged_more_than_it_has_does_not_stand() -> None:
    node = make_node(N0, term=3, log=LogEnd(point(5, 3)))
    node.know_tail(point(7, 3), START_MS)
    node.tick(node.deadline_ms)
    assert node.role is Role.FOLLOWER


def role_after_wait(node: RaftNode) -> Role:
    node.tick(node.deadline_ms)
    return node.role


def test_who_does_not_know_what_it_acknowledged_votes_for_a_log_of_a_later_term_alone() -> None:
    node = make_node(N0, term=3, log=LogEnd(point(5, 2)))
    node.lose_tail()
    assert verdict(node, N1, vote_request(5, point(9, 3))) is VoteResult.EXPIRED_LEDGER_TERM
    assert verdict(node, N1, vote_request(5, point(6, 4))) is VoteResult.ACCEPT


def test_who_does_not_know_what_it_acknowledged_stands_when_its_log_ends_in_a_later_term() -> None:
    log = LogEnd(point(5, 2))
    node = make_node(N0, term=3, log=log)
    node.lose_tail()
    assert role_after_wait(node) is Role.FOLLOWER
    log.last = point(6, 4)
    assert role_after_wait(node) is Role.CANDIDATE


def test_the_only_voter_stands_as_soon_as_it_knows_what_it_acknowledged() -> None:
    node = make_node(N0, membership=members(1), log=LogEnd(point(5, 2)))
    node.lose_tail()
    assert role_after_wait(node) is Role.FOLLOWER
    node.know_tail(point(5, 2), START_MS)
    assert node.deadline_ms == START_MS
    assert role_after_wait(node) is Role.LEADER


def test_whoever_knows_a_leader_takes_no_frames_of_others() -> None:
    node = make_node(N0)
    assert node.takes_tail
    follow(node, N1, term=3)
    assert not node.takes_tail
    assert not make_leader(N0, term=3).takes_tail
