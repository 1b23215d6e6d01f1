"""One change of members at a time: the schedule that breaks it without the rule, and what a removed node can do.

Ongaro's erratum of 2015 ("bug in single-server membership changes"): n0 leads n0…n3 and appends that n4 votes too; n1
is elected by the others, who have not heard of it, and appends that n0 is gone. Each change differs by one voter from
what was before, and yet {n1, n2} commits one, {n0, n3, n4} the other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import Member, NodeId, Role
from dledger.raft.membership import Membership
from tests.unit.raft.harness import N0, N1, N2, N3, N4
from tests.unit.raft.peers import Peer
from tests.unit.raft.schedules import Schedule


def deliver_among(schedule: Schedule, *nodes: NodeId, until: Callable[[], bool] = lambda: False) -> None:
    """What they say to each other arrives and is synced; what others say, or are told, is lost."""
    while schedule.bag and not until():
        letter = schedule.bag.pop(0)
        if {letter.sender, letter.to} <= set(nodes):
            schedule._receive(letter)
            for at, peer in enumerate(schedule.peers.values()):
                if peer.node_id in nodes and peer.log.durable < len(peer.log.items):
                    schedule.sync(at)
    schedule.bag.clear()


def stand(schedule: Schedule, node: NodeId) -> None:
    schedule.tick([peer.node_id for peer in schedule._running()].index(node))


def elect(schedule: Schedule, node: NodeId, *voters: NodeId, until_led: bool = False) -> Peer:
    """``node`` is elected by ``voters``; with ``until_led`` nobody hears of its no-op yet."""
    peer = schedule.peers[node]
    for _ in range(30):
        stand(schedule, node)
        deliver_among(schedule, node, *voters, until=lambda: until_led and schedule._core(peer).leadership is not None)
        if schedule._core(peer).leadership is not None:
            return peer
    raise AssertionError(f"{node} was not elected")


def settle(schedule: Schedule, leader: Peer) -> None:
    """Everyone has the leader's log, and knows what is committed."""
    for _ in range(3):
        schedule._push(leader)
        deliver_among(schedule, *schedule.peers)


def voters(*nodes: NodeId, learners: tuple[NodeId, ...] = ()) -> Membership:
    return Membership(
        Member(node, f"h:{100 + int(node[1:])}", voter=node not in learners) for node in (*nodes, *learners)
    )


def until_n1_leads() -> tuple[Schedule, Peer]:
    """n0 has appended, where nobody but n4 knows of it, that n4 votes; n1 leads now, its no-op not committed."""
    schedule = Schedule(4, 0, spares=1)
    n0 = elect(schedule, N0, N1, N2, N3)
    settle(schedule, n0)
    schedule.append_change(n0, voters(N0, N1, N2, N3, learners=(N4,)))
    settle(schedule, n0)
    schedule.append_change(n0, voters(N0, N1, N2, N3, N4))
    schedule._push(n0)
    deliver_among(schedule, N0, N4)
    n1 = elect(schedule, N1, N2, N3, until_led=True)
    return schedule, n1


def test_a_change_before_the_terms_first_commit_would_lose_what_is_committed() -> None:
    schedule, n1 = until_n1_leads()
    schedule.append_change(n1, voters(N1, N2, N3, learners=(N4,)))
    for _ in range(2):
        schedule._push(n1)
        deliver_among(schedule, N1, N2)
    assert schedule._core(n1).commit_position == len(n1.log.items)
    with pytest.raises(AssertionError, match="n0 leads 3 without what is committed"):
        elect(schedule, N0, N3, N4)


def test_a_leader_may_not_change_the_members_before_it_has_committed_in_its_term() -> None:
    schedule, n1 = until_n1_leads()
    with pytest.raises(DLedgerError) as refused:
        schedule._check_change(n1, schedule._core(n1))
    assert refused.value.code is Code.LEADER_NOT_READY


def test_once_it_may_the_other_change_cannot_be_committed_any_more() -> None:
    schedule, n1 = until_n1_leads()
    for _ in range(2):
        schedule._push(n1)
        deliver_among(schedule, N1, N2, N3)
    schedule._check_change(n1, schedule._core(n1))
    schedule.append_change(n1, voters(N1, N2, N3, learners=(N4,)))
    for _ in range(2):
        schedule._push(n1)
        deliver_among(schedule, N1, N2)
    with pytest.raises(AssertionError, match="n0 was not elected"):
        elect(schedule, N0, N3, N4)


def test_a_change_while_another_is_not_committed_is_refused() -> None:
    schedule, n1 = until_n1_leads()
    settle(schedule, n1)
    schedule.append_change(n1, voters(N1, N2, N3))
    with pytest.raises(DLedgerError) as refused:
        schedule._check_change(n1, schedule._core(n1))
    assert refused.value.code is Code.CHANGE_PENDING


def test_a_change_that_was_cut_again_is_taken_back() -> None:
    schedule, n1 = until_n1_leads()
    assert N4 in schedule._core(schedule.peers[N4]).membership.voters
    settle(schedule, n1)
    settle(schedule, n1)
    for node in (N0, N4):
        core = schedule._core(schedule.peers[node])
        assert core.membership.voters == {N0, N1, N2, N3}
    assert schedule._core(schedule.peers[N4]).role is Role.LEARNER


def test_a_removed_node_that_never_heard_of_it_disturbs_nobody() -> None:
    schedule = Schedule(3, 0)
    n0 = elect(schedule, N0, N1, N2)
    settle(schedule, n0)
    schedule.append_change(n0, voters(N0, N1))
    for _ in range(2):
        schedule._push(n0)
        deliver_among(schedule, N0, N1)
    removed, leader = schedule._core(schedule.peers[N2]), schedule._core(n0)
    assert N2 not in leader.membership.members
    assert removed.is_voter, "by its own log"
    terms = (removed.term, leader.term)
    for _ in range(200):
        schedule.clock(0)
        schedule._deliver_all()
    assert (removed.term, leader.term) == terms
    assert leader.role is Role.LEADER
    assert schedule.real_ms > 10_000 + 50 * 100, "for many election timeouts"
