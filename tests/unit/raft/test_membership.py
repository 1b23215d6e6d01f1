from __future__ import annotations

from dledger.raft.membership import Membership
from dledger.types import Member, NodeId
from tests.unit.raft.harness import N0, N1, N2, members


def test_learners_belong_to_the_group_and_do_not_decide() -> None:
    membership = members(3, learners=[NodeId("l0")])
    assert membership.voters == {"n0", "n1", "n2"}
    assert membership.majority == 2
    assert membership.others(N0) == ["l0", "n1", "n2"]


def test_a_quorum_is_counted_among_voters_alone() -> None:
    membership = members(3, learners=[NodeId("l0"), NodeId("l1")])
    assert membership.is_quorum([N0, N2])
    assert not membership.is_quorum([N1, NodeId("l0"), NodeId("l1")])
    assert not membership.is_quorum([N1, N1, N1])


def test_the_others_come_in_a_fixed_order_whatever_the_order_of_the_configuration() -> None:
    there, back = (
        [Member(NodeId(name), "h:1") for name in names] for names in (("n2", "n0", "n1"), ("n1", "n0", "n2"))
    )
    assert Membership(there).others(N0) == Membership(back).others(N0) == [N1, N2]


def test_nobody_is_a_quorum_of_an_empty_group() -> None:
    assert not Membership([]).is_quorum([])
