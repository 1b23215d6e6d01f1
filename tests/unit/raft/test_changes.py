"""What becomes of a node when the members change, a disk, or what it may do: as transcripts (see harness.py)."""

from __future__ import annotations

import pytest

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import LogPoint, Member, NodeId, Position, Role, Term
from dledger.raft.membership import Membership
from dledger.raft.messages import NOBODY, CompareResponse, PushResult, TakeLeadership, VoteResult
from dledger.raft.raft_node import RaftNode
from dledger.raft.replication import PushState
from dledger.raft.state import CALLS_BEFORE_STANDING
from tests.unit.raft.harness import (
    GROUP,
    N0,
    N1,
    N2,
    N3,
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

LEARNER = NodeId("l0")
STRANGER = NodeId("n9")
TIMEOUT_MS = TIMINGS.election_timeout_min_ms


def tick(node: RaftNode) -> float:
    now_ms = node.deadline_ms
    node.tick(now_ms)
    return now_ms


def acknowledge(leader: RaftNode, peer: NodeId, position: int) -> None:
    leadership = leader.hear_follower(peer, leader.term, now_of(leader))
    assert leadership is not None
    leadership.followers[peer].match, leadership.followers[peer].is_compared = Position(position), True
    leader.advance(leader._log.last.position, now_of(leader))


def verdict(node: RaftNode, candidate: NodeId, *request: object, **more: object) -> VoteResult:
    node.take_effects()
    node.on_vote_request(candidate, vote_request(*request, **more), START_MS)  # type: ignore[arg-type]
    return answers(node)[-1].result


# A leader that is no voter any more ----------------------------------------------------------------------------------


def test_a_leader_that_removed_itself_leads_on_and_counts_the_others_alone() -> None:
    log = LogEnd()
    leader = make_leader(N0, log=log)
    log.last = point(2, 1)
    leader.set_membership(members(3, without=[N0]), now_of(leader))
    acknowledge(leader, N1, 2)
    assert (leader.role, leader.commit_position) == (Role.LEADER, 0)
    acknowledge(leader, N2, 2)
    assert leader.commit_position == 2


def test_a_leader_that_removed_itself_needs_the_others_to_stay_leader_and_to_confirm_reads() -> None:
    leader = make_leader(N0)
    leader.set_membership(members(3, without=[N0]), now_of(leader))
    leader.begin_read_round(now_of(leader))
    leader.on_heartbeat_response(N1, heard(1, 1), now_of(leader))
    assert "reads confirmed 1" not in transcript(leader)
    while leader.role is Role.LEADER:
        now_ms = tick(leader)
        leader.on_heartbeat_response(N1, heard(1, 1), now_ms)
    assert leader.role is Role.LEARNER


def test_a_leader_that_was_removed_and_steps_down_stands_no_more() -> None:
    leader = make_leader(N0)
    leader.set_membership(members(3, without=[N0]), now_of(leader))
    leader.on_heartbeat_response(N1, heard(2), now_of(leader))
    assert transcript(leader)[-1] == "learner in 2 of -"
    for _ in range(5):
        tick(leader)
    assert transcript(leader) == []


def test_check_quorum_counts_by_the_present_members() -> None:
    """Of five, two were dead; the one who answers is a majority with the leader as soon as the two are removed."""
    leader = make_leader(N0, membership=members(5))
    leader.set_membership(members(3), now_of(leader))
    for _ in range(20):
        now_ms = tick(leader)
        leader.on_heartbeat_response(N2, heard(1), now_ms)
    assert leader.role is Role.LEADER


def test_a_handover_ends_when_its_target_is_removed() -> None:
    leader = make_leader(N0, log=LogEnd(point(5, 1)), term=2)
    leader.begin_transfer(N1, Position(5), now_of(leader))
    leader.set_membership(members(3, without=[N1]), now_of(leader))
    assert transcript(leader) == ["transfer ended -"]
    leader.advance(Position(5), now_of(leader))


# A node that is no voter any more, or becomes one --------------------------------------------------------------------


def test_a_voter_that_is_demoted_while_it_stands_stands_no_more() -> None:
    node = make_node(N2)
    now_ms = tick(node)
    node.set_membership(members(3, learners=[N2]), now_ms)
    assert transcript(node)[-1] == "learner in 0 of -"
    for voter in (N0, N1):
        node.on_vote_response(voter, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    assert (node.role, node.term) == (Role.LEARNER, 0)


def test_a_candidate_counts_by_the_members_it_asked_or_asks_again() -> None:
    node = make_node(N0, membership=members(5))
    now_ms = tick(node)
    node.on_vote_response(N1, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    node.set_membership(members(4), now_ms)
    node.on_vote_response(N2, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    assert (node.role, node.term) == (Role.FOLLOWER, 0)


@pytest.mark.parametrize("role_before", ["voter", "learner"])
def test_who_becomes_the_only_voter_leads_at_once(role_before: str) -> None:
    before = members(2) if role_before == "voter" else members(2, learners=[N1])
    node = make_node(N1, membership=before)
    follow(node, N0, term=1)
    node.set_membership(members(2, without=[N0]), START_MS + 5)
    assert node.deadline_ms == START_MS + 5
    node.tick(START_MS + 5)
    assert (node.role, node.term) == (Role.LEADER, 2)


def test_the_only_voter_left_by_removals_commits_alone() -> None:
    log = LogEnd()
    leader = make_leader(N0, membership=members(2), log=log)
    log.last = point(2, 1)
    leader.set_membership(members(1), now_of(leader))
    leader.advance(Position(2), now_of(leader))
    assert leader.commit_position == 2
    for _ in range(20):
        tick(leader)
    assert leader.role is Role.LEADER


def test_the_only_voter_that_may_not_lead_waits() -> None:
    node = make_node(N0, membership=members(1))
    node.set_may_lead(False, START_MS)
    for _ in range(5):
        now_ms = tick(node)
    assert (node.role, node.term) == (Role.FOLLOWER, 0)
    node.set_may_lead(True, now_ms)
    tick(node)
    assert (node.role, node.term) == (Role.LEADER, 1)


def test_a_follower_whose_leader_was_removed_goes_on_following_it() -> None:
    node = make_node(N1)
    follow(node, N0, term=1)
    node.set_membership(members(3, without=[N0]), START_MS)
    node.on_heartbeat(N0, heartbeat(1), START_MS + 100)
    assert (node.role, node.leader_id) == (Role.FOLLOWER, N0)


def test_a_leader_is_followed_that_the_own_log_does_not_know_yet() -> None:
    joining = make_node(N3, membership=members(0))
    follow(joining, N0, term=4)
    assert (joining.role, joining.leader_id) == (Role.LEARNER, N0)


# Who is heard --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_pre_vote", [True, False])
def test_a_removed_node_asks_in_vain_and_changes_nothing(*, is_pre_vote: bool) -> None:
    """It does not have the frame that removed it, so its log is not ahead of one that has."""
    node = make_node(N0, membership=members(3, without=[N2]), term=4, log=LogEnd(point(9, 4)))
    request = vote_request(9, point(8, 4), is_pre_vote=is_pre_vote)
    deadline_ms = node.deadline_ms
    node.on_vote_request(N2, request, START_MS)
    assert transcript(node) == ["UNKNOWN_LEADER in 4 → n2"]
    assert node.deadline_ms == deadline_ms


def test_the_answers_of_a_removed_node_depose_no_leader_and_no_candidate() -> None:
    leader = make_leader(N0, membership=members(3, without=[N2]), term=3)
    leader.on_heartbeat_response(N2, heard(9), now_of(leader))
    leader.on_vote_response(N2, vote_response(3, VoteResult.EXPIRED_VOTE_TERM, voter_term=9), now_of(leader))
    assert (leader.role, leader.term) == (Role.LEADER, 3)


def test_a_voter_that_was_away_votes_for_a_candidate_that_joined_meanwhile() -> None:
    """Without it, two of three voters could be up and elect nobody: one knows nobody, the other has the shorter log."""
    away = make_node(N2, membership=members(3), log=LogEnd(point(5, 2)))
    assert verdict(away, STRANGER, 4, point(5, 2)) is VoteResult.UNKNOWN_LEADER
    assert verdict(away, STRANGER, 4, point(6, 2)) is VoteResult.ACCEPT


def test_a_learner_that_was_promoted_and_does_not_know_it_votes_for_who_does() -> None:
    """Of the four voters that a promotion makes three are needed: with one gone, the new one's vote decides."""
    learner = make_node(N3, membership=members(4, learners=[N3]), log=LogEnd(point(5, 2)))
    assert verdict(learner, N1, 4, point(5, 2)) is VoteResult.NOT_A_VOTER
    assert verdict(learner, N1, 4, point(6, 2)) is VoteResult.ACCEPT
    assert (learner.vote, learner.role) == (N1, Role.LEARNER)


@pytest.mark.parametrize("after", [members(4, learners=[N3]), members(4, without=[N3])], ids=["demoted", "removed"])
def test_who_is_no_voter_by_its_own_log_refuses_a_shorter_one_for_being_shorter(after: Membership) -> None:
    """The frame that says so may be nowhere else. To a candidate without it this node is a voter still, and needed: it
    is to hear that there are frames to fetch."""
    node = make_node(N3, membership=after, log=LogEnd(point(5, 2)))
    assert verdict(node, N1, 4, point(4, 2)) is VoteResult.SMALL_LEDGER_END_INDEX
    assert verdict(node, N1, 5, point(9, 1)) is VoteResult.EXPIRED_LEDGER_TERM
    assert verdict(node, N1, 6, point(5, 2)) is VoteResult.NOT_A_VOTER
    assert node.vote == NOBODY


# A learner whose log is needed ---------------------------------------------------------------------------------------


def called(node: RaftNode, *, times: int = CALLS_BEFORE_STANDING, last: LogPoint | None = None) -> RaftNode:
    """``node`` after calls for its vote by voters that take it for one; ``last`` is where their logs end."""
    for _ in range(times):
        node.on_vote_request(N1, vote_request(node.term + 1, last or point(9, 1), is_pre_vote=True), START_MS)
    node.take_effects()
    return node


def make_learner(**more: object) -> RaftNode:
    log = LogEnd(point(5, 2))
    return make_node(N3, membership=members(4, learners=[N3]), term=2, log=log, **more)  # type: ignore[arg-type]


def test_a_learner_whose_log_is_the_last_stands_when_it_is_called_again_and_again() -> None:
    """It was promoted in frames that a later leader, which wrote to it alone, did not have; and that one is gone."""
    learner = called(make_learner())
    tick(learner)
    assert [say for say in transcript(learner) if "→" in say] == [f"pre-vote for 3 → n{i}" for i in range(3)]
    assert learner.role is Role.CANDIDATE


def test_a_learner_that_stands_is_elected_by_a_majority_of_the_voters_without_itself() -> None:
    learner = called(make_learner())
    now_ms = tick(learner)
    for is_pre_vote in (True, False):
        for voter in (N1, N2):
            assert learner.leadership is None
            answer = vote_response(3, voter_term=2 if is_pre_vote else 3, is_pre_vote=is_pre_vote)
            learner.on_vote_response(voter, answer, now_ms)
    assert learner.leadership is not None
    assert not learner.leadership.self_votes


@pytest.mark.parametrize("last", [point(5, 2), point(6, 2)], ids=["level", "ahead"])
def test_a_learner_that_is_called_by_a_log_as_good_as_its_own_does_not_stand(last: LogPoint) -> None:
    learner = called(make_learner(), last=last)
    tick(learner)
    assert learner.role is Role.LEARNER


def test_a_learner_that_was_called_a_few_times_leaves_it_to_those_who_call() -> None:
    learner = called(make_learner(), times=CALLS_BEFORE_STANDING - 1)
    tick(learner)
    assert learner.role is Role.LEARNER


def test_a_learner_that_hears_a_leader_forgets_that_it_was_called() -> None:
    learner = called(make_learner())
    follow(learner, N1, term=3)
    for _ in range(3):
        tick(learner)
    assert learner.role is Role.LEARNER


def test_a_learner_that_hears_the_leader_it_has_forgets_that_it_was_called() -> None:
    learner, now_ms = make_learner(), START_MS
    follow(learner, N0, term=2, now_ms=now_ms)
    for _ in range(CALLS_BEFORE_STANDING):
        now_ms += 10
        learner.on_peer_disconnected(N0, now_ms)
        learner.on_vote_request(N1, vote_request(3, point(9, 1), is_pre_vote=True), now_ms)
        learner.on_heartbeat(N0, heartbeat(2), now_ms)
    tick(learner)
    assert learner.role is Role.LEARNER


@pytest.mark.parametrize("answered", [True, False])
def test_a_learner_that_stood_in_vain_waits_until_it_is_called_again(*, answered: bool) -> None:
    learner = called(make_learner())
    now_ms = tick(learner)
    if answered:
        for voter in (N1, N2):
            answer = vote_response(3, VoteResult.ALREADY_HAS_LEADER, voter_term=2, is_pre_vote=True)
            learner.on_vote_response(voter, answer, now_ms)
    else:
        tick(learner)
    assert (learner.role, learner.ballot) == (Role.LEARNER, None)
    tick(learner)
    assert learner.role is Role.LEARNER
    called(learner)
    tick(learner)
    assert learner.ballot is not None


def test_a_learner_that_leads_commits_what_a_majority_of_the_voters_has() -> None:
    log = LogEnd(point(5, 2))
    leader = make_leader(N3, membership=members(4, learners=[N3]), log=log, term=3, calls=CALLS_BEFORE_STANDING)
    log.last = point(6, 3)
    acknowledge(leader, N1, 6)
    assert leader.commit_position == 0
    acknowledge(leader, N2, 6)
    assert leader.commit_position == 6


def test_a_learner_that_leads_and_hears_no_majority_is_a_learner_again() -> None:
    membership = members(4, learners=[N3])
    leader = make_leader(N3, membership=membership, log=LogEnd(point(5, 2)), term=3, calls=CALLS_BEFORE_STANDING)
    while leader.leadership is not None:
        tick(leader)
    assert leader.role is Role.LEARNER


def test_a_called_learner_that_cannot_rely_on_its_promises_does_not_stand() -> None:
    learner = called(make_learner())
    learner.set_may_vote(False, START_MS)
    tick(learner)
    assert learner.role is Role.LEARNER


def test_a_called_learner_beside_a_sole_voter_asks_for_its_vote() -> None:
    membership = members(2, learners=[N1])
    learner = make_node(N1, membership=membership, term=2, log=LogEnd(point(5, 2)))
    for _ in range(CALLS_BEFORE_STANDING):
        learner.on_vote_request(N0, vote_request(3, point(9, 1), is_pre_vote=True), START_MS)
    assert learner._election_deadline(START_MS) > START_MS
    now_ms = tick(learner)
    assert learner.role is Role.CANDIDATE
    learner.on_vote_response(N0, vote_response(3, voter_term=2, is_pre_vote=True), now_ms)
    learner.on_vote_response(N0, vote_response(3), now_ms)
    assert learner.leadership is not None


def test_who_was_removed_does_not_stand_however_often_it_is_called() -> None:
    removed = called(make_node(N3, membership=members(4, without=[N3]), term=2, log=LogEnd(point(5, 2))))
    tick(removed)
    assert removed.role is Role.LEARNER


def test_who_cannot_rely_on_its_promises_votes_for_no_log_however_far_ahead() -> None:
    node = make_node(N2, log=LogEnd(point(5, 2)))
    node.set_may_vote(False, START_MS)
    assert verdict(node, N1, 4, point(6, 2)) is VoteResult.NOT_A_VOTER
    assert verdict(node, N1, 5, point(4, 2)) is VoteResult.NOT_A_VOTER  # frames to fetch would not help


# The vote of a term that has a leader --------------------------------------------------------------------------------


def test_the_vote_of_a_term_goes_to_its_leader_when_it_was_not_given() -> None:
    node = make_node(N2)
    node.on_heartbeat(N0, heartbeat(3), START_MS)
    assert transcript(node)[0] == "persist 3 n0"
    node.on_heartbeat(N0, heartbeat(3), START_MS)
    assert transcript(node) == ["heard 3 round 0 → n0"], "once"


def test_a_vote_that_was_given_to_another_stays_given() -> None:
    node = make_node(N2, term=3, vote=N1)
    node.on_heartbeat(N0, heartbeat(3), START_MS)
    assert node.vote == N1


def test_a_disk_that_forgot_its_vote_and_was_admitted_anew_cannot_vote_twice_in_the_term() -> None:
    """Its former life elected n0 in term 3. It came back empty, was admitted by n0 in that very term, and is asked by a
    candidate of that term that had been away."""
    node = make_node(N2, membership=members(0))
    follow(node, N0, term=3)
    node.set_membership(members(3), START_MS)
    node.on_peer_disconnected(N0, START_MS)
    again = make_node(N2, term=node.term, vote=node.vote, membership=members(3))
    for each in (node, again):
        assert verdict(each, N1, 3, point(9, 2)) is VoteResult.ALREADY_VOTED


# Doubt, and its end --------------------------------------------------------------------------------------------------


def test_a_doubt_that_is_lifted_begins_from_nothing() -> None:
    log = LogEnd()
    leader = make_leader(N0, log=log)
    log.last = point(3, 1)
    leader.doubt(N1)
    acknowledge(leader, N1, 3)
    leader.trust(N1, now_of(leader))
    leader.advance(Position(3), now_of(leader))
    assert leader.commit_position == 0, "what it acknowledged while in doubt is not trusted later"
    acknowledge(leader, N1, 3)
    assert leader.commit_position == 3


def test_a_doubt_survives_a_new_connection_of_the_same_disk_and_a_new_term() -> None:
    leader = make_leader(N0)
    leader.doubt(N1)
    leader.forget(N1, now_of(leader))
    assert leader.leadership is not None
    assert not leader.leadership.followers[N1].counts
    leader.set_membership(members(3, without=[N1]), now_of(leader))
    leader.set_membership(members(3), now_of(leader))
    assert not leader.leadership.followers[N1].counts


def test_a_candidate_may_count_on_who_is_trusted_again() -> None:
    node = make_node(N0)
    node.doubt(N1)
    node.trust(N1, START_MS)
    now_ms = tick(node)
    node.on_vote_response(N1, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    assert node.term == 1


def test_a_follower_that_was_given_up_as_diverged_is_compared_again_with_another_disk() -> None:
    leader = make_leader(N0, log=LogEnd(point(5, 1)), term=2)
    assert leader.leadership is not None
    leader.leadership.followers[N1].paused_until_ms = float("inf")
    leader.forget(N1, now_of(leader))
    progress = leader.leadership.followers[N1]
    assert (progress.state, progress.compare_at, progress.paused_until_ms) == (PushState.COMPARE, 5, 0)


def test_what_a_former_disk_was_asked_is_not_answered_by_the_next() -> None:
    leader = make_leader(N0, log=LogEnd(point(5, 1)), term=2)
    assert leader.leadership is not None
    asked = leader.leadership.followers[N1].asked(START_MS)
    leader.forget(N1, now_of(leader))
    progress = leader.leadership.followers[N1]
    progress.asked(START_MS + 1)
    progress.on_compare(
        CompareResponse(GROUP, Term(2), PushResult.SUCCESS, Position(5), Term(1), asked), Position(5), Position(0)
    )
    assert progress.state is PushState.COMPARE


def test_another_disk_admitted_under_the_id_is_tracked_anew_and_the_first_one_named_is_the_one_known() -> None:
    leader = make_leader(N0, log=LogEnd(point(5, 1)), term=2)
    assert leader.leadership is not None
    acknowledge(leader, N1, 5)
    for disk, match in ((b"first", 5), (b"first", 5), (b"other", 0)):
        leader.set_membership(
            type(leader.membership)(members(3).replaced(Member(N1, "h:101", True, disk))), now_of(leader)
        )
        assert leader.leadership.followers[N1].match == match


# A disk that does not keep up ----------------------------------------------------------------------------------------


def test_a_leader_that_may_not_lead_steps_down_and_names_the_closest_that_it_hears() -> None:
    leader = make_leader(N0, log=LogEnd(point(5, 1)), term=2)
    acknowledge(leader, N1, 3)
    acknowledge(leader, N2, 4)
    leader.take_effects()
    leader.set_may_lead(False, now_of(leader))
    assert transcript(leader) == ["follower in 2 of -", "take 2 at 4 → n2"]
    leader.on_vote_request(N2, vote_request(3, point(5, 1), transfer_from=N0), now_of(leader))
    assert transcript(leader)[-1] == "ACCEPT in 3 → n2"


def test_a_leader_that_hears_nobody_steps_down_without_a_word() -> None:
    leader = make_leader(N0)
    leader.set_may_lead(False, now_of(leader) + TIMEOUT_MS)
    assert transcript(leader) == ["follower in 1 of -"]


def test_who_may_not_lead_follows_votes_and_does_not_stand() -> None:
    node = make_node(N1)
    node.set_may_lead(False, START_MS)
    for _ in range(5):
        tick(node)
    assert transcript(node) == []
    assert verdict(node, N2, 1) is VoteResult.ACCEPT
    node.on_heartbeat(N2, heartbeat(1), START_MS)
    node.on_take_leadership(N2, TakeLeadership(GROUP, Term(1), Position(0)), START_MS)
    assert (node.role, node.term, node.leader_id) == (Role.FOLLOWER, 1, N2)


def test_a_candidate_that_may_not_lead_gives_up_and_one_that_may_again_stands_again() -> None:
    node = make_node(N1)
    now_ms = tick(node)
    node.set_may_lead(False, now_ms)
    node.on_vote_response(N0, vote_response(1, voter_term=0, is_pre_vote=True), now_ms)
    assert (node.role, node.leader_id, node.term) == (Role.FOLLOWER, NOBODY, 0)
    node.set_may_lead(True, now_ms)
    tick(node)
    assert node.role is Role.CANDIDATE


# A log that begins anew ----------------------------------------------------------------------------------------------


def test_a_reset_log_is_committed_and_equal_to_the_leaders_up_to_where_it_begins() -> None:
    log = LogEnd(point(4, 1))
    node = make_node(N1, log=log, commit=2)
    follow(node, N0, term=3)
    log.last = point(100, 2)
    node.on_reset(log.last)
    assert transcript(node) == ["committed 100"]
    assert (node.commit_position, node.matched_position) == (100, 100)
    node.on_heartbeat(N0, heartbeat(3, commit=120), START_MS)
    assert node.commit_position == 100


# When a change may be appended ---------------------------------------------------------------------------------------


def test_a_change_waits_for_a_commit_of_the_term_and_for_the_change_before() -> None:
    log = LogEnd(point(5, 1))
    leader = make_leader(N0, term=2, log=log)
    log.last = point(6, 2)
    acknowledge(leader, N1, 5)
    with pytest.raises(DLedgerError) as refused:
        leader.check_change(Position(3))
    assert refused.value.code is Code.LEADER_NOT_READY
    acknowledge(leader, N1, 6)
    leader.check_change(Position(6))
    log.last = point(7, 2)
    with pytest.raises(DLedgerError) as refused:
        leader.check_change(Position(7))
    assert refused.value.code is Code.CHANGE_PENDING
