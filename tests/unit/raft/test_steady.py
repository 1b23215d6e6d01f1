"""Heartbeats, and answers to them, that change nothing: what is done at once is what the long way would do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from dledger.common.types import DiskState, NodeId, Position, Term
from dledger.raft.effects import Send
from dledger.raft.messages import HeartbeatResponse
from dledger.raft.raft_node import RaftNode
from dledger.raft.state import VoteBlocker
from tests.unit.raft.harness import (
    GROUP,
    N0,
    N1,
    N2,
    START_MS,
    LogEnd,
    follow,
    heard,
    heartbeat,
    make_leader,
    make_node,
    members,
    now_of,
    point,
    vote_request,
)

WALL_MS = 1_700_000_000_000
SENDERS = st.sampled_from([N0, N1, N2, NodeId("n9")])


_THE_SAME = ("_random", "leadership", "_is_connected", "_log", "membership", "ballot")
"""What no message of a leader changes, or what is compared by what it holds."""


def state_of(node: RaftNode) -> dict[str, Any]:
    """All that a node knows, to be compared: also what its randomness gives next."""
    known = {name: value for name, value in vars(node).items() if name not in _THE_SAME}
    leadership = node.leadership
    if leadership is not None:
        known["leadership"] = {peer: _slots(progress) for peer, progress in leadership.followers.items()}
        known["rounds"] = leadership.confirmed_round, leadership.own_round
    return {**known, "random": node._random.getstate(), "stands": node.ballot is not None}


def _slots(progress: Any) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in progress.__slots__ if name != "_request_ids"}


TROUBLES: dict[str, Callable[[RaftNode], object]] = {
    "matched": lambda node: node.on_matched(Position(5)),
    "owes a catch-up": lambda node: node.set_may_vote(False, START_MS, VoteBlocker.OWES_CATCH_UP),
    "another disk": lambda node: node.set_may_vote(False, START_MS, VoteBlocker.OTHER_DISK),
    "slow disk": lambda node: node.set_may_lead(False, START_MS),
    "unknown tail": RaftNode.lose_tail,
    "knows its tail": lambda node: node.know_tail(point(5, 1), START_MS),
    "lacks its tail": lambda node: node.know_tail(point(9, 1), START_MS),
    "voted for another": lambda node: node.on_vote_request(N2, vote_request(4, point(5, 1)), START_MS + 5_000),
    "stands": lambda node: node.tick(START_MS + 5_000),
    "lost its leader": lambda node: node.on_peer_disconnected(N1, START_MS),
}


def follower(draw: st.DrawFn) -> RaftNode:
    """One that follows n1 in term 3, and what may have come upon it."""
    node = make_node(N0, log=LogEnd(point(5, 1)), term=2, commit=3, lease_reads=draw(st.booleans()))
    follow(node, N1, term=3)
    for trouble in draw(st.lists(st.sampled_from(sorted(TROUBLES)), max_size=2)):
        TROUBLES[trouble](node)
    if draw(st.integers(0, 5)):
        node.take_effects()
    return node


@given(st.data())
def test_an_answer_at_once_is_the_one_of_the_long_way_and_leaves_the_same_node(data: st.DataObject) -> None:
    node = data.draw(st.composite(follower)())
    term = data.draw(st.sampled_from([3, 3, 3, 2, 4]))
    message = heartbeat(term, data.draw(st.integers(0, 6)), data.draw(st.integers(0, 3)))
    sender, now_ms = data.draw(st.sampled_from([N1, N1, N1, N2, NodeId("n9")])), START_MS + 6_000
    twin = copy.deepcopy(node)
    effects, before = list(node._effects), state_of(node)
    answer = node.answer_if_steady(sender, message, now_ms, WALL_MS)
    event("answered at once" if answer is not None else "the long way")
    if answer is None:
        assert state_of(node) == before, "it is untouched"
        return
    twin.on_heartbeat(sender, message, now_ms, WALL_MS)
    assert twin.take_effects() == [*effects, Send(sender, answer)]
    node.take_effects()
    assert state_of(node) == state_of(twin)


@pytest.mark.parametrize("term", [2, 3, 4])
def test_only_what_the_leader_of_the_term_says_is_answered_at_once(term: int) -> None:
    node = make_node(N0, term=3)
    follow(node, N1, term=3)
    assert node.answer_if_steady(N2, heartbeat(term), START_MS, WALL_MS) is None
    answer = node.answer_if_steady(N1, heartbeat(term, round_number=7), START_MS, WALL_MS)
    assert answer == (HeartbeatResponse(GROUP, Term(3), 7, wall_clock_ms=WALL_MS) if term == 3 else None)


def test_nothing_is_answered_at_once_while_something_is_to_be_persisted_or_committed() -> None:
    node = make_node(N0, term=2, log=LogEnd(point(5, 2)))
    node.on_heartbeat(N1, heartbeat(3), START_MS)
    assert node.answer_if_steady(N1, heartbeat(3), START_MS, WALL_MS) is None, "term 3 is not taken to be saved yet"
    node.take_effects()
    node.on_matched(Position(5))
    assert node.answer_if_steady(N1, heartbeat(3, commit=5), START_MS, WALL_MS) is None
    node.follow_commit(Position(5))
    node.take_effects()
    assert node.answer_if_steady(N1, heartbeat(3, commit=5), START_MS, WALL_MS) is not None


@given(st.data())
def test_an_answer_taken_at_once_leaves_the_leader_as_the_long_way_does(data: st.DataObject) -> None:
    lease_reads = data.draw(st.booleans())
    leader = make_leader(N0, membership=members(3), term=2, lease_reads=lease_reads)
    now_ms = now_of(leader) + 10
    for _ in range(data.draw(st.integers(0, 3))):
        leader.begin_read_round(now_ms)
    for _ in range(data.draw(st.integers(0, 4))):
        said = heard(2, data.draw(st.integers(0, 3)), keeps_lease=data.draw(st.booleans()))
        leader.on_heartbeat_response(data.draw(st.sampled_from([N1, N2])), said, now_ms)
    leader.take_effects()
    twin = copy.deepcopy(leader)
    answer = HeartbeatResponse(
        GROUP,
        Term(data.draw(st.integers(1, 3))),
        data.draw(st.integers(0, 3)),
        data.draw(st.booleans()),
        data.draw(st.sampled_from(DiskState)),
        WALL_MS,
        data.draw(st.booleans()),
    )
    sender, before = data.draw(SENDERS), state_of(leader)
    is_taken = leader.take_if_steady(sender, answer, now_ms + 5)
    event("taken at once" if is_taken else "the long way")
    if not is_taken:
        assert state_of(leader) == before
        return
    twin.on_heartbeat_response(sender, answer, now_ms + 5)
    assert twin.take_effects() == []
    assert state_of(leader) == state_of(twin)


def test_a_new_round_and_a_later_term_take_the_long_way() -> None:
    leader = make_leader(N0, term=2)
    now_ms = now_of(leader) + 10
    round_number = leader.begin_read_round(now_ms)
    assert not leader.take_if_steady(N1, heard(2, round_number), now_ms)
    assert not leader.take_if_steady(N1, heard(3), now_ms)
    assert not leader.take_if_steady(NodeId("n9"), heard(2), now_ms)
    assert leader.take_if_steady(N1, heard(2), now_ms)
