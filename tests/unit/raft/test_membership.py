"""Who decides, and what may become of the members: each rule of a change, and what refuses it."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.common.config import MAX_MEMBERS
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import DiskState, Member, NodeId, NodeStart
from dledger.raft.fitness import Measure, MemberFacts, Need
from dledger.raft.membership import Membership, plan_add, plan_promote, plan_readmit, plan_remove, with_disks
from tests.unit.raft.harness import N0, N1, N2, N3, members

LEARNER = NodeId("l0")
STRANGER = NodeId("n9")
MEASURE = Measure(max_silence_ms=500, max_lag_frames=100, max_lag_ms=1_000)
OLD_DISK, NEW_DISK = b"old", b"new"
HEALTHY = MemberFacts(is_connected=True, counts=True, lag_frames=0, start=NodeStart(NEW_DISK, 3, (7,)))
IN_DOUBT = HEALTHY._replace(counts=False)
FROZEN = HEALTHY._replace(silent_ms=4_200)
LAGGING = HEALTHY._replace(lag_frames=101)
LATE = HEALTHY._replace(lag_frames=2, lag_ms=1_001.0)
FULL = HEALTHY._replace(disk=DiskState.FULL)
AWAY = HEALTHY._replace(is_connected=False)
OWING = HEALTHY._replace(may_vote=False)
UNFIT = {
    "frozen": FROZEN,
    "lagging": LAGGING,
    "late": LATE,
    "full": FULL,
    "away": AWAY,
    "in doubt": IN_DOUBT,
    "owing": OWING,
}


def ids(planned: tuple[Member, ...] | None, *, voters: bool) -> list[str]:
    assert planned is not None
    return sorted(member.id for member in planned if member.voter is voters)


def test_learners_belong_to_the_group_and_do_not_decide() -> None:
    membership = members(3, learners=[LEARNER])
    assert membership.voters == {"n0", "n1", "n2"}
    assert membership.majority == 2
    assert membership.others(N0) == ["l0", "n1", "n2"]


def test_a_quorum_is_counted_among_voters_alone() -> None:
    membership = members(3, learners=[LEARNER, NodeId("l1")])
    assert membership.is_quorum([N0, N2])
    assert not membership.is_quorum([N1, LEARNER, NodeId("l1")])
    assert not membership.is_quorum([N1, N1, N1])


def test_the_others_come_in_a_fixed_order_whatever_the_order_of_the_configuration() -> None:
    there, back = (
        [Member(NodeId(name), "h:1") for name in names] for names in (("n2", "n0", "n1"), ("n1", "n0", "n2"))
    )
    assert Membership(there).others(N0) == Membership(back).others(N0) == [N1, N2]


def test_nobody_is_a_quorum_of_an_empty_group() -> None:
    assert not Membership([]).is_quorum([])


@given(st.integers(1, 6))
def test_a_majority_before_and_one_after_a_change_of_one_voter_share_a_voter(count: int) -> None:
    smaller, larger = members(count), members(count + 1)
    for before in combinations(smaller.voters, smaller.majority):
        for after in combinations(larger.voters, larger.majority):
            assert set(before) & set(after)


# Adding --------------------------------------------------------------------------------------------------------------


def test_who_is_added_is_a_learner() -> None:
    planned = plan_add(members(3), N3, "h:7")
    assert ids(planned, voters=True) == ["n0", "n1", "n2"]
    assert planned is not None
    assert planned[-1] == Member(N3, "h:7", voter=False)


def test_adding_again_changes_nothing_whatever_the_role() -> None:
    assert plan_add(members(3, learners=[LEARNER]), LEARNER, "h:9") is None
    assert plan_add(members(3), N1, "h:101") is None


@pytest.mark.parametrize(
    ("node_id", "address", "why"),
    [
        (N1, "h:7", "n1 is a member at h:101 already"),
        (STRANGER, "h:101", "h:101 is the address of n1"),
        (STRANGER, "h", "is not an address"),
        (STRANGER, "h:0", "is not an address"),
        (STRANGER, "", "is not an address"),
        (STRANGER, "h:²", "is not an address"),
        (STRANGER, "h:" + "9" * 5_000, "is not an address"),
        (STRANGER, "two words:7", "is not an address"),
        (STRANGER, "h" * 254 + ":7", "is not an address"),
        (STRANGER, "0.0.0.0:7", "nobody can be reached there"),
        (STRANGER, "[::]:7", "nobody can be reached there"),
        (NodeId(""), "h:7", "is not a node id"),
        (NodeId("n 9"), "h:7", "is not a node id"),
        (NodeId("n" * 256), "h:7", "is not a node id"),
    ],
)
def test_an_id_or_address_that_cannot_be_used_is_refused(node_id: NodeId, address: str, why: str) -> None:
    with pytest.raises(DLedgerError, match=why) as refused:
        plan_add(members(3), node_id, address)
    assert refused.value.code is Code.UNEXPECTED_ARGUMENT


def test_a_group_has_room_for_so_many_members_and_no_more() -> None:
    assert plan_add(members(MAX_MEMBERS - 1), NodeId("one-more"), "h:7") is not None
    with pytest.raises(DLedgerError, match="no more than 128") as refused:
        plan_add(members(MAX_MEMBERS), NodeId("one-more"), "h:7")
    assert refused.value.code is Code.CHANGE_REFUSED
    assert plan_add(members(MAX_MEMBERS), N1, "h:101") is None, "who is a member is one"


# Promoting -----------------------------------------------------------------------------------------------------------


def promoted(learner: MemberFacts, others: MemberFacts = HEALTHY) -> tuple[Member, ...] | None:
    facts = {LEARNER: learner, N1: HEALTHY, N2: others}
    return plan_promote(members(3, learners=[LEARNER]), LEARNER, N0, facts, MEASURE)


def test_a_learner_that_has_caught_up_is_promoted_under_the_disk_it_has() -> None:
    planned = promoted(HEALTHY._replace(lag_frames=100))
    assert planned is not None
    assert planned[-1] == Member(LEARNER, "h:9", True, NEW_DISK, 3, 7)


def test_a_learner_that_leads_hands_over_before_it_is_promoted() -> None:
    with pytest.raises(DLedgerError, match="l0 leads") as refused:
        plan_promote(members(3, learners=[LEARNER]), LEARNER, LEARNER, {N1: HEALTHY, N2: HEALTHY}, MEASURE)
    assert refused.value.code is Code.CHANGE_REFUSED
    assert refused.value.metadata["waits_for"] == "handover"


def test_a_voter_is_one_already() -> None:
    assert plan_promote(members(3), N1, N0, {}, MEASURE) is None


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (HEALTHY._replace(is_connected=False), "l0 is not connected"),
        (IN_DOUBT, "l0 is in doubt"),
        (LAGGING, "101 frames behind, 100 are allowed"),
        (LATE, "2 frames behind, some of them written more than 1 s ago"),
        (FROZEN, "l0 has not answered for 4.2 s"),
        (FULL, "l0 has a full disk"),
        (HEALTHY._replace(lag_frames=None), "l0 was not compared with the leader yet"),
    ],
)
def test_a_learner_that_a_quorum_could_not_rest_on_is_not_promoted(facts: MemberFacts, why: str) -> None:
    with pytest.raises(DLedgerError, match=why) as refused:
        promoted(facts)
    assert refused.value.code is Code.CHANGE_REFUSED


@pytest.mark.parametrize(
    ("facts", "waits_for"),
    [
        (HEALTHY._replace(is_connected=False), {"waits_for": "connection"}),
        (LAGGING, {"waits_for": "catch_up"}),
        (FROZEN, {"waits_for": "answer"}),
        (IN_DOUBT, {}),
        (FULL, {}),
    ],
)
def test_a_refusal_says_whether_it_passes_by_itself(facts: MemberFacts, waits_for: dict[str, str]) -> None:
    with pytest.raises(DLedgerError) as refused:
        promoted(facts)
    assert refused.value.metadata == waits_for


@pytest.mark.parametrize("one", UNFIT.values(), ids=UNFIT.keys())
def test_a_fourth_voter_needs_three_that_are_fit(one: MemberFacts) -> None:
    assert promoted(HEALTHY, others=one) is not None
    with pytest.raises(DLedgerError, match=r"of the 4 voters .* 3 must be fit, and 2 would: n1 .*; n2"):
        plan_promote(members(3, learners=[LEARNER]), LEARNER, N0, {LEARNER: HEALTHY, N1: one, N2: one}, MEASURE)


def test_nobody_is_promoted_or_readmitted_that_is_no_member() -> None:
    with pytest.raises(DLedgerError, match="'n9' is not a member of the group; its members: n0, n1, n2") as refused:
        plan_promote(members(3), STRANGER, N0, {STRANGER: HEALTHY}, MEASURE)
    assert refused.value.code is Code.UNKNOWN_MEMBER
    with pytest.raises(DLedgerError, match="'n9' is not a member of the group"):
        plan_readmit(members(3), STRANGER, N0, {STRANGER: HEALTHY}, MEASURE)


# Removing ------------------------------------------------------------------------------------------------------------


def test_a_voter_is_removed_while_a_majority_of_the_others_is_healthy() -> None:
    planned = plan_remove(members(3), N2, N0, {N1: HEALTHY}, MEASURE)
    assert ids(planned, voters=True) == ["n0", "n1"]


def test_a_dead_voter_of_three_can_be_removed_and_a_living_one_beside_it_cannot() -> None:
    facts = {N1: HEALTHY, N2: HEALTHY._replace(is_connected=False)}
    assert ids(plan_remove(members(3), N2, N0, facts, MEASURE), voters=True) == ["n0", "n1"]
    with pytest.raises(DLedgerError, match="of the 2 voters that there would be 2 must be fit") as refused:
        plan_remove(members(3), N1, N0, facts, MEASURE)
    assert refused.value.code is Code.CHANGE_REFUSED


@pytest.mark.parametrize("other", UNFIT.values(), ids=UNFIT.keys())
def test_a_healthy_voter_stays_while_the_majority_behind_it_would_rest_on_one_that_is_not_fit(
    other: MemberFacts,
) -> None:
    with pytest.raises(DLedgerError, match="2 must be fit, and 1 would: n2 ") as refused:
        plan_remove(members(3), N1, N0, {N1: HEALTHY, N2: other}, MEASURE)
    assert refused.value.code is Code.CHANGE_REFUSED
    passes = {"waits_for": Need.CATCH_UP.value} if other in (LAGGING, LATE, OWING) else {}
    assert refused.value.metadata == passes, "a lag, or a debt, passes by itself; of the rest nobody knows"
    assert ids(plan_remove(members(3), N2, N0, {N1: HEALTHY, N2: other}, MEASURE), voters=True) == ["n0", "n1"]


def test_a_leader_that_removes_itself_is_no_part_of_what_remains() -> None:
    with pytest.raises(DLedgerError, match="n2 is not connected"):
        plan_remove(members(3), N0, N0, {N1: HEALTHY}, MEASURE)
    assert ids(plan_remove(members(3), N0, N0, {N1: HEALTHY, N2: HEALTHY}, MEASURE), voters=True) == ["n1", "n2"]


def test_the_last_voter_stays() -> None:
    with pytest.raises(DLedgerError, match="the last voter stays"):
        plan_remove(members(1, learners=[LEARNER]), N0, N0, {LEARNER: HEALTHY}, MEASURE)


def test_a_learner_can_always_be_removed() -> None:
    assert ids(plan_remove(members(3, learners=[LEARNER]), LEARNER, N0, {}, MEASURE), voters=False) == []


def test_removing_a_node_that_is_none_changes_nothing() -> None:
    assert plan_remove(members(3), STRANGER, N0, {}, MEASURE) is None


@pytest.mark.parametrize("node_id", ["", "n1,n2", "n 1"])
def test_what_is_no_id_is_refused_and_not_taken_for_removed(node_id: str) -> None:
    with pytest.raises(DLedgerError, match="is not a node id") as refused:
        plan_remove(members(3), NodeId(node_id), N0, {}, MEASURE)
    assert refused.value.code is Code.UNEXPECTED_ARGUMENT


# Re-admitting --------------------------------------------------------------------------------------------------------


def test_a_voter_in_doubt_becomes_a_learner_under_the_disk_it_has() -> None:
    planned = plan_readmit(members(3), N2, N0, {N1: HEALTHY, N2: IN_DOUBT}, MEASURE)
    assert ids(planned, voters=True) == ["n0", "n1"]
    assert planned is not None
    assert planned[-1] == Member(N2, "h:102", False, NEW_DISK, 3, 7)


def test_another_disk_than_the_one_admitted_is_admitted_though_this_leader_never_doubted_it() -> None:
    known = Membership(members(3).replaced(Member(N2, "h:102", True, OLD_DISK, 9)))
    planned = plan_readmit(known, N2, N0, {N1: HEALTHY, N2: HEALTHY}, MEASURE)
    assert planned is not None
    assert planned[-1] == Member(N2, "h:102", False, NEW_DISK, 3, 7)


def test_a_member_that_nobody_doubts_stays_what_it_is() -> None:
    assert plan_readmit(members(3), N2, N0, {N2: HEALTHY}, MEASURE) is None
    admitted = Membership(members(3).replaced(Member(N2, "h:102", False, NEW_DISK, 3, 7)))
    assert plan_readmit(admitted, N2, N0, {N2: HEALTHY}, MEASURE) is None


@pytest.mark.parametrize(
    ("node_id", "facts", "why"),
    [
        (N2, {N1: HEALTHY}, "n2 is not connected"),
        (N2, {N1: HEALTHY, N2: IN_DOUBT._replace(is_connected=False)}, "n2 is not connected"),
        (N2, {N1: IN_DOUBT, N2: IN_DOUBT}, "n1 is in doubt"),
        (N0, {N1: HEALTHY, N2: HEALTHY}, "n0 leads"),
    ],
)
def test_a_member_is_not_readmitted_where_that_would_do_harm(
    node_id: NodeId, facts: dict[NodeId, MemberFacts], why: str
) -> None:
    with pytest.raises(DLedgerError, match=why) as refused:
        plan_readmit(members(3), node_id, N0, facts, MEASURE)
    assert refused.value.code is Code.CHANGE_REFUSED


# Disks ---------------------------------------------------------------------------------------------------------------


def test_a_member_without_a_disk_gets_the_one_that_is_known() -> None:
    named = with_disks(members(3).members.values(), {N1: NEW_DISK, N2: b"", STRANGER: OLD_DISK})
    assert [each.node_uuid for each in named] == [b"", NEW_DISK, b""]


def test_a_disk_that_was_admitted_is_named_as_it_was() -> None:
    admitted = Member(N1, "h:101", True, OLD_DISK, 3, 7)
    assert with_disks([admitted], {N1: NEW_DISK}) == (admitted,)
