"""The nodes of a schedule, what they send each other, and whom they take for what it was (see schedules.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dledger.common.types import Member, NodeId, NodeStart, Position, Term
from dledger.raft.fitness import MemberFacts
from dledger.raft.membership import Membership
from dledger.raft.messages import NOBODY, Message
from dledger.raft.raft_node import RaftNode
from tests.unit.raft.watch import Item, ListLog


@dataclass(frozen=True)
class Push:
    """Some of the leader's log behind ``after``, which must be in the follower's."""

    term: Term
    after: int
    after_item: Item | None
    items: tuple[Item, ...]
    commit: Position


@dataclass(frozen=True)
class PushReset:
    """The leader's log begins behind ``items``, and the follower holds less."""

    term: Term
    items: tuple[Item, ...]


@dataclass(frozen=True)
class PushAnswer:
    """``match``: durable, and equal to the leader's, up to here."""

    term: Term
    match: int


@dataclass(frozen=True)
class AskTail:
    """What do you have behind ``after``, which holds ``item``?"""

    after: int
    item: Item | None


@dataclass(frozen=True)
class Tail:
    """Some of a log behind ``after``, whoever has it."""

    after: int
    item: Item | None
    items: tuple[Item, ...]


class Identity(NamedTuple):
    disk: int
    start: int


class Letter(NamedTuple):
    """A connection is between two starts: what comes from, or was sent to, an earlier start is lost with it."""

    sender: NodeId
    sender_start: int
    to: NodeId
    to_start: int
    message: Message | Push | PushReset | PushAnswer | AskTail | Tail


class Peer:
    """One node over all its starts: what is on its disk, and the running core, or None while it is down."""

    def __init__(self, node_id: NodeId, configured: Membership, clock_rate: float) -> None:
        self.node_id = node_id
        self.configured = configured
        """The members as long as the log does not name them."""
        self.clock_rate = clock_rate
        self.core: RaftNode | None = None
        self.disk = 0
        self.start = 0
        self.wipe()

    def wipe(self) -> None:
        """Another disk: nothing is left of what was promised and acknowledged. A node that was started as a group of
        its own must not be again, it would elect itself."""
        assert self.core is None
        if self.disk and len(self.configured.voters) == 1:
            self.configured = Membership([])
        self.disk += 1
        self.log = ListLog()
        self.term = Term(0)
        self.vote = NOBODY
        self.highest_term = Term(0)
        self.commit_hint = Position(0)
        self.book: dict[NodeId, Identity] = {}
        """Durable: the disk of each other node that was met, and its start."""

    @property
    def identity(self) -> Identity:
        return Identity(self.disk, self.start)

    @property
    def disk_uuid(self) -> bytes:
        return b"%d" % self.disk

    def now_ms(self, real_ms: float) -> float:
        return real_ms * self.clock_rate

    def real_ms(self, now_ms: float) -> float:
        return now_ms / self.clock_rate

    # Members -----------------------------------------------------------------------------------------------------

    def members_position(self, changes: dict[int, Membership]) -> Position:
        """Of the log's last change of members; 0 when there is none."""
        items = self.log.items
        return Position(next((at + 1 for at in reversed(range(len(items))) if items[at][1] in changes), 0))

    def membership(self, changes: dict[int, Membership]) -> Membership:
        position = self.members_position(changes)
        return changes[self.log.items[position - 1][1]] if position else self.configured

    # Others ------------------------------------------------------------------------------------------------------

    def hear_hello(self, other: Peer, now_ms: float) -> None:
        """Both run and speak with each other."""
        core = self.core
        assert core is not None
        before = self.book.get(other.node_id)
        if before != other.identity:
            core.forget(other.node_id, now_ms)
        if before is None or before.disk == other.disk or self._admits(core, other):
            self.book[other.node_id] = other.identity
        self.judge(other, now_ms)

    def judge(self, other: Peer, now_ms: float) -> None:
        """Whether ``other`` is the disk that was admitted, or, where none was named, the one that was met."""
        core = self.core
        assert core is not None
        known = self.book.get(other.node_id)
        member = core.membership.members.get(other.node_id)
        admitted = member.node_uuid if member is not None else b""
        is_same = self._admits(core, other) if admitted else known is None or known.disk == other.disk
        if is_same and other.node_id in core.doubted:
            self.book[other.node_id] = other.identity
            core.trust(other.node_id, now_ms)
        elif not is_same and other.node_id not in core.doubted:
            core.doubt(other.node_id)

    @staticmethod
    def _admits(core: RaftNode, other: Peer) -> bool:
        member = core.membership.members.get(other.node_id)
        return member is not None and member.node_uuid == other.disk_uuid


def facts_of(leader: Peer, peers: dict[NodeId, Peer]) -> dict[NodeId, MemberFacts]:
    assert leader.core is not None
    assert leader.core.leadership is not None
    return {
        peer: MemberFacts(
            is_connected=peers[peer].core is not None,
            counts=progress.counts,
            lag_frames=len(leader.log.items) - progress.match,
            start=NodeStart(peers[peer].disk_uuid, peers[peer].start, (peers[peer].start,)),
        )
        for peer, progress in leader.core.leadership.followers.items()
    }


def configuration(voters: int) -> Membership:
    return Membership([Member(NodeId(f"n{i}"), f"h:{100 + i}") for i in range(voters)])
