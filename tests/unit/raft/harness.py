"""What the core's tests are written in: a log that is only its end, nodes made in one line, and transcripts.

A transcript says what a node wants done, in order::

    pre-vote for 1 → n1      WAIT_TO_REVOTE, asked of n1
    persist 1 n0             term 1 and the vote for n0 are to be made durable before anything below
    candidate in 1 of -      the role, the term, the leader known
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from random import Random

from dledger.common.config import Limits, Timings
from dledger.common.types import GENESIS, LogPoint, Member, NodeId, Position, Term
from dledger.raft.effects import (
    Committed,
    Effect,
    FetchTail,
    Persist,
    ReadsConfirmed,
    RoleChanged,
    Send,
    TransferEnded,
)
from dledger.raft.membership import Membership
from dledger.raft.messages import (
    NOBODY,
    Heartbeat,
    HeartbeatResponse,
    Message,
    TakeLeadership,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.raft_node import RaftNode

GROUP = "default"
TIMINGS = Timings(heartbeat_interval_ms=100, election_timeout_min_ms=400, election_timeout_max_ms=800)
"""Four heartbeats are the shortest election timeout."""
START_MS = 10_000.0

N0, N1, N2, N3, N4 = (NodeId(f"n{i}") for i in range(5))


class LogEnd:
    """As much of a log as the decisions look at."""

    def __init__(self, last: LogPoint = GENESIS) -> None:
        self.last = last


def point(position: int, term: int, chain: int = 1) -> LogPoint:
    return LogPoint(Position(position), Term(term), chain)


def members(count: int, learners: Iterable[NodeId] = (), *, without: Collection[NodeId] = ()) -> Membership:
    voters = [Member(NodeId(f"n{i}"), f"h:{100 + i}") for i in range(count) if f"n{i}" not in (*without, *learners)]
    return Membership([*voters, *(Member(learner, "h:9", voter=False) for learner in learners)])


def make_node(
    node_id: NodeId = N0,
    *,
    membership: Membership | None = None,
    term: int = 0,
    vote: NodeId = NOBODY,
    log: LogEnd | None = None,
    commit: int = 0,
    seed: int = 0,
    now_ms: float = START_MS,
    lease_reads: bool = False,
) -> RaftNode:
    """A node of three, as it is after a start; what it says of its role at first is taken already."""
    node = RaftNode(
        group=GROUP,
        node_id=node_id,
        membership=membership or members(3),
        term=Term(term),
        vote=vote,
        log=log or LogEnd(),
        commit_position=Position(commit),
        timings=TIMINGS,
        limits=Limits(),
        random=Random(seed),
        is_connected=lambda _peer: True,
        now_ms=now_ms,
        lease_reads=lease_reads,
    )
    node.take_effects()
    return node


def vote_request(
    term: int, last: LogPoint = GENESIS, *, is_pre_vote: bool = False, transfer_from: NodeId = NOBODY
) -> VoteRequest:
    return VoteRequest(GROUP, Term(term), is_pre_vote, last.term, last.position, transfer_from)


def vote_response(
    term: int, result: VoteResult = VoteResult.ACCEPT, *, voter_term: int | None = None, is_pre_vote: bool = False
) -> VoteResponse:
    voter_term = term if voter_term is None else voter_term
    return VoteResponse(GROUP, Term(voter_term), is_pre_vote, Term(term), result)


def heartbeat(term: int, commit: int = 0, round_number: int = 0) -> Heartbeat:
    return Heartbeat(GROUP, Term(term), Position(commit), round_number)


def heard(term: int, round_number: int = 0, *, keeps_lease: bool = False) -> HeartbeatResponse:
    return HeartbeatResponse(GROUP, Term(term), round_number, keeps_lease)


def make_leader(
    node_id: NodeId = N0,
    *,
    membership: Membership | None = None,
    term: int = 1,
    log: LogEnd | None = None,
    commit: int = 0,
    doubted: Sequence[NodeId] = (),
    lease_reads: bool = False,
    calls: int = 0,
) -> RaftNode:
    """Elected in ``term`` by everyone, at ``START_MS``, behind ``calls`` for its vote by one whose log is empty; its
    effects are taken. The log is not longer for it."""
    node = make_node(node_id, membership=membership, term=term - 1, log=log, commit=commit, lease_reads=lease_reads)
    for _ in range(calls):
        node.on_vote_request(N0, vote_request(term, is_pre_vote=True), START_MS)
    for peer in doubted:
        node.doubt(peer)
    # Elected where heartbeats are due, the leader sends its next one a whole interval later.
    now_ms = node.deadline_ms = node._next_heartbeat_ms(node.deadline_ms)
    node.tick(now_ms)
    for is_pre_vote in (True, False):
        for peer in sorted(node.membership.voters - {node_id}):
            voter_term = term - 1 if is_pre_vote else term
            node.on_vote_response(peer, vote_response(term, voter_term=voter_term, is_pre_vote=is_pre_vote), now_ms)
    assert node.leadership is not None
    assert node.term == term
    node.take_effects()
    return node


def now_of(leader: RaftNode) -> float:
    """When a leader just elected was elected."""
    return leader.deadline_ms - TIMINGS.heartbeat_interval_ms


def follow(node: RaftNode, leader: NodeId, term: int, now_ms: float = START_MS) -> None:
    """``node`` has heard ``leader`` of ``term``."""
    node.on_heartbeat(leader, heartbeat(term), now_ms)
    assert node.leader_id == leader
    node.take_effects()


# Transcripts ---------------------------------------------------------------------------------------------------------


def transcript(node: RaftNode) -> list[str]:
    """What the node wants done, and has not been asked for yet."""
    return [say(effect) for effect in node.take_effects()]


def say(effect: Effect) -> str:
    match effect:
        case Persist(term, vote):
            return f"persist {term} {vote or '-'}"
        case RoleChanged(role, term, leader_id):
            return f"{role.value} in {term} of {leader_id or '-'}"
        case Committed(position):
            return f"committed {position}"
        case ReadsConfirmed(round_number):
            return f"reads confirmed {round_number}"
        case FetchTail(peer):
            return f"fetch the tail of {peer}"
        case TransferEnded(new_leader_id):
            return f"transfer ended {new_leader_id or '-'}"
        case Send(to, message):
            return f"{say_message(message)} → {to}"


def say_message(message: Message) -> str:
    match message:
        case VoteRequest():
            handed = f" handed over by {message.transfer_leader_id}" if message.transfer_leader_id else ""
            return f"{'pre-vote' if message.is_pre_vote else 'vote'} for {message.term}{handed}"
        case VoteResponse():
            return f"{message.result.name} in {message.term}"
        case Heartbeat():
            return f"heartbeat {message.term} commit {message.commit_position} round {message.round}"
        case HeartbeatResponse():
            promise = " keeping the lease" if message.keeps_lease else ""
            return f"heard {message.term} round {message.round}{promise}"
        case TakeLeadership():
            return f"take {message.term} at {message.position}"
        case _:
            raise AssertionError(f"the core does not send {message}")


def answers(node: RaftNode) -> list[VoteResponse]:
    """The votes it gave or refused."""
    return [e.message for e in node.take_effects() if isinstance(e, Send) and isinstance(e.message, VoteResponse)]
