"""Who asks for votes first when a leader is lost, and when a group is new."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from dledger.common.config import Limits
from dledger.common.types import GENESIS, LogPoint, NodeId, Position, Term
from dledger.raft.election import VoteStage
from dledger.raft.messages import NOBODY, VoteResult
from dledger.raft.raft_node import TURN_HEARTBEATS, RaftNode
from dledger.raft.rendezvous import ranked
from tests.unit.raft.harness import (
    N0,
    N1,
    START_MS,
    TIMINGS,
    LogEnd,
    answers,
    follow,
    make_node,
    members,
    point,
    vote_request,
)

HEARTBEAT_MS = TIMINGS.heartbeat_interval_ms
TURN_MS = TURN_HEARTBEATS * HEARTBEAT_MS
FIVE = [NodeId(f"n{number}") for number in range(5)]


def node_of(node_id: NodeId, *, group: str = "orders.7", last: LogPoint = GENESIS, seed: int = 0) -> RaftNode:
    node = RaftNode(
        group=group,
        node_id=node_id,
        membership=members(5),
        term=Term(0),
        vote=NOBODY,
        log=LogEnd(last),
        commit_position=Position(0),
        timings=TIMINGS,
        limits=Limits(),
        random=Random(seed),
        is_connected=lambda _peer: True,
        now_ms=START_MS,
        in_turn=True,
    )
    node.take_effects()
    return node


def test_the_successors_of_a_leader_that_is_gone_ask_one_after_the_other() -> None:
    deadlines = {}
    for each in FIVE[1:]:
        node = make_node(each, membership=members(5))
        follow(node, N0, term=3)
        node.deadline_ms = START_MS + 10 * TURN_MS
        node.on_peer_disconnected(N0, START_MS)
        deadlines[each] = node.deadline_ms - START_MS
    successors = ranked("default", FIVE[1:])
    assert sorted(deadlines, key=deadlines.__getitem__) == successors
    for place, each in enumerate(successors):
        assert place * TURN_MS <= deadlines[each] <= place * TURN_MS + HEARTBEAT_MS / 2


def test_a_voter_waits_for_no_turn_beyond_its_election_timeout() -> None:
    last = ranked("default", FIVE[1:])[-1]
    node = make_node(last, membership=members(5))
    follow(node, N0, term=3)
    before_ms = node.deadline_ms
    node.on_peer_disconnected(N0, START_MS)
    assert node.deadline_ms <= before_ms


@pytest.mark.parametrize("seed", range(5))
def test_of_many_groups_each_has_its_voters_stand_in_turn_after_a_silence(seed: int) -> None:
    for number in range(20):
        group = f"g.{number}"
        waits = [node_of(each, group=group, seed=seed).deadline_ms - START_MS for each in ranked(group, FIVE)]
        part_ms = (TIMINGS.election_timeout_max_ms - TIMINGS.election_timeout_min_ms) / 5
        assert all(after - before >= part_ms / 2 for before, after in pairwise(waits)), waits
        assert waits[0] >= TIMINGS.election_timeout_min_ms
        assert waits[-1] <= TIMINGS.election_timeout_max_ms


def test_the_turn_follows_the_members() -> None:
    first, second, *_ = ranked("orders.7", FIVE)
    node = node_of(second, last=point(1, 1))
    node.set_membership(members(5, without=[first]), START_MS)
    follow(node, ranked("orders.7", FIVE)[2], term=1)
    wait_ms = node.deadline_ms - START_MS
    assert wait_ms <= TIMINGS.election_timeout_min_ms + (400 / 4) / 2, "it is the first now"


def test_the_first_of_the_order_stands_soon_where_a_group_is_new_and_nowhere_else() -> None:
    first, second, *_ = ranked("orders.7", FIVE)
    for node_id, place in ((first, 0), (second, 1)):
        node = node_of(node_id)
        node.found_in_turn(START_MS)
        least_ms = HEARTBEAT_MS + place * TURN_MS
        assert least_ms <= node.deadline_ms - START_MS <= least_ms + HEARTBEAT_MS / 2
    old = node_of(first, last=point(1, 1))
    before_ms = old.deadline_ms
    old.found_in_turn(START_MS)
    assert old.deadline_ms == before_ms


def test_who_refuses_a_candidate_for_the_end_of_its_log_asks_soon_itself() -> None:
    node = make_node(N0, log=LogEnd(point(5, 2)), term=2)
    node.deadline_ms = START_MS + 700
    node.on_vote_request(N1, vote_request(3, point(4, 2), is_pre_vote=True), START_MS)
    assert [answer.result for answer in answers(node)] == [VoteResult.SMALL_LEDGER_END_INDEX]
    assert node.deadline_ms <= START_MS + HEARTBEAT_MS / 2
    node.tick(node.deadline_ms)
    assert node.ballot is not None
    assert node.ballot.stage is VoteStage.WAIT_TO_REVOTE


def test_who_hears_a_leader_or_asks_already_does_not() -> None:
    node = make_node(N0, log=LogEnd(point(5, 2)), term=2)
    follow(node, N1, term=2)
    before_ms = node.deadline_ms
    node.on_vote_request(NodeId("n2"), vote_request(3, point(4, 2), is_pre_vote=True), START_MS + 500)
    assert node.deadline_ms == before_ms
    node.tick(before_ms)
    asked_ms = node.deadline_ms
    node.on_vote_request(NodeId("n2"), vote_request(3, point(4, 2), is_pre_vote=True), before_ms)
    assert node.deadline_ms == asked_ms
