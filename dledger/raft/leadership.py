"""What a node knows only while it leads one term: its followers' progress, read rounds, a handover under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dledger.config import Limits, Timings
from dledger.raft.membership import Membership
from dledger.raft.messages import Heartbeat, Message
from dledger.raft.quorum import quorum_value
from dledger.raft.replication import Progress
from dledger.types import NodeId, Position, Term


@dataclass(slots=True)
class Transfer:
    """A handover under way: appends are refused until it ends."""

    target: NodeId
    deadline_ms: float
    is_sent: bool = False


class Leadership:
    """Created with the term and thrown away with it, so nothing of an old term is ever counted."""

    def __init__(
        self,
        *,
        group: str,
        term: Term,
        node_id: NodeId,
        membership: Membership,
        last: Position,
        now_ms: float,
        timings: Timings,
        limits: Limits,
    ) -> None:
        self.term_start = Position(last + 1)
        """Where the term's no-op stands: only at or above it is anything committed by counting."""
        self.transfer: Transfer | None = None
        self.confirmed_round = 0
        self._group = group
        self._term = term
        self._node_id = node_id
        self._membership = membership
        self._timings = timings
        self._limits = limits
        self._round = 0
        self._own_round = 0
        self.followers: dict[NodeId, Progress] = {}
        self.set_membership(membership, last, now_ms)

    def set_membership(self, membership: Membership, last: Position, now_ms: float) -> None:
        self._membership = membership
        self.followers = {
            peer: self.followers.get(peer) or self._new_progress(last, now_ms)
            for peer in membership.others(self._node_id)
        }

    def _new_progress(self, last: Position, now_ms: float) -> Progress:
        limits = self._limits
        return Progress(last, now_ms, window_frames=limits.push_window_frames, window_bytes=limits.push_window_bytes)

    def _counting(self) -> list[Progress]:
        voters = self._membership.voters
        return [progress for peer, progress in self.followers.items() if progress.counts and peer in voters]

    @property
    def _self_votes(self) -> bool:
        return self._node_id in self._membership.voters

    def quorum_position(self, own_durable: Position) -> Position:
        """What a majority of the voters holds durably, by this leader's knowledge."""
        matches: list[int] = [progress.match for progress in self._counting()]
        if self._self_votes:
            matches.append(own_durable)
        return Position(quorum_value(matches, len(self._membership.voters)))

    def hears_quorum(self, now_ms: float) -> bool:
        """Check-quorum: whether a majority, ourselves included, was heard within the shortest election timeout."""
        since_ms = now_ms - self._timings.election_timeout_min_ms
        heard = sum(progress.contact_ms > since_ms for progress in self._counting())
        return heard + self._self_votes >= self._membership.majority

    def forgive(self, late_ms: float) -> None:
        """This process stood still for ``late_ms``: its followers get that time again."""
        for progress in self.followers.values():
            progress.contact_ms += late_ms

    # Read rounds -------------------------------------------------------------------------------------------------

    def next_round(self) -> int:
        self._round += 1
        return self._round

    def on_round(self, sender: NodeId, round_number: int) -> bool:
        """True when a quorum has now answered a round that was not confirmed yet."""
        if sender == self._node_id:
            self._own_round = round_number
        else:
            progress = self.followers[sender]
            progress.round = max(progress.round, round_number)
        rounds = [progress.round for progress in self._counting()]
        if self._self_votes:
            rounds.append(self._own_round)
        confirmed = quorum_value(rounds, len(self._membership.voters))
        grew = confirmed > self.confirmed_round
        self.confirmed_round = max(self.confirmed_round, confirmed)
        return grew

    def broadcast_heartbeat(self, send: Callable[[NodeId, Message], None], commit: Position) -> None:
        for peer in self.followers:
            send(peer, Heartbeat(self._group, self._term, commit, self._round))

    # Handover ----------------------------------------------------------------------------------------------------

    def begin_transfer(self, target: NodeId, deadline_ms: float) -> None:
        assert self.transfer is None
        self.transfer = Transfer(target, deadline_ms)

    def transfer_is_due(self, last: Position) -> bool:
        """Whether the target holds everything and has not been told yet."""
        transfer = self.transfer
        return transfer is not None and not transfer.is_sent and self.followers[transfer.target].match >= last

    def closest_follower(self, among: Iterable[NodeId]) -> NodeId | None:
        """The voter with the smallest lag."""
        candidates = [
            (-self.followers[peer].match, peer)
            for peer in among
            if self.followers[peer].counts and peer in self._membership.voters
        ]
        return min(candidates)[1] if candidates else None
