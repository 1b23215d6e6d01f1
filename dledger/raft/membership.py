"""Who belongs to a group: voters decide, learners only listen. And what may become of them, one change at a time.

A ``plan_*`` function looks at the members and at what the leader knows of them, and returns all members as they are to
be, or None when they are so already; or it raises, saying what stands in the way. It changes nothing: a leader appends
what was planned as a MEMBERSHIP frame, once ``RaftNode.check_change`` lets it.

Only one voter comes or goes with a change, so any majority before it and any majority after it share a voter. That is
why one change suffices (Ongaro's dissertation, §4.1), as long as the one before is committed, and the leader has
committed something of its own term: ``RaftNode.check_change`` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dledger.config import NODE_ID, Limits, split_address
from dledger.errors import Code, ConfigError, DLedgerError, error
from dledger.raft.quorum import majority
from dledger.types import Member, NodeId


class Membership:
    """An immutable set of members. The log carries it, so it changes when a frame that says so is appended."""

    __slots__ = ("majority", "members", "voters")

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = {member.id: member for member in members}
        self.voters = frozenset(member.id for member in self.members.values() if member.voter)
        self.majority = majority(len(self.voters))

    def others(self, node_id: NodeId) -> list[NodeId]:
        """Everyone but ``node_id``, in a fixed order."""
        return sorted(member for member in self.members if member != node_id)

    def is_quorum(self, nodes: Iterable[NodeId]) -> bool:
        return len(self.voters.intersection(nodes)) >= self.majority

    def get(self, node_id: NodeId) -> Member:
        """Raises UNKNOWN_MEMBER."""
        member = self.members.get(node_id)
        if member is None:
            known = ", ".join(sorted(self.members)) or "nobody"
            raise error(Code.UNKNOWN_MEMBER, f"{node_id!r} is not a member of the group; its members: {known}")
        return member

    def replaced(self, member: Member) -> tuple[Member, ...]:
        """All members, with ``member`` in the place of the one of its id."""
        return tuple(member if each.id == member.id else each for each in self.members.values())


class MemberFacts(NamedTuple):
    """What the leader knows of another member."""

    is_connected: bool
    counts: bool
    """Not in doubt: quorums may rest on it."""
    lag_frames: int
    """The leader's last position minus what the member holds durably."""
    node_uuid: bytes = b""
    """Of the disk it last said hello with; empty before it ever did."""
    start_count: int = 0
    """The start of that disk."""


UNHEARD = MemberFacts(is_connected=False, counts=False, lag_frames=0)


def plan_add(membership: Membership, node_id: NodeId, peer_address: str) -> tuple[Member, ...] | None:
    """``node_id`` as a learner. None: it is a member at that address already, in whatever role.

    Raises UNEXPECTED_ARGUMENT: no id, no address, or one of them is another's.
    """
    if not NODE_ID.fullmatch(node_id):
        raise error(
            Code.UNEXPECTED_ARGUMENT, f"{node_id!r} is not a node id: use up to 255 letters, digits, '-', '_' and '.'"
        )
    try:
        place = split_address(peer_address)
    except ConfigError as reason:
        raise error(Code.UNEXPECTED_ARGUMENT, str(reason)) from None
    for member in membership.members.values():
        is_same_place = split_address(member.peer_address) == place
        if is_same_place and member.id == node_id:
            return None
        if is_same_place:
            raise error(
                Code.UNEXPECTED_ARGUMENT,
                f"{peer_address} is the address of {member.id}: give {node_id} its own, or remove {member.id} first",
            )
        if member.id == node_id:
            raise error(
                Code.UNEXPECTED_ARGUMENT,
                f"{node_id} is a member at {member.peer_address} already: remove it first, or choose another id",
            )
    return (*membership.members.values(), Member(node_id, peer_address, voter=False))


def plan_promote(
    membership: Membership, node_id: NodeId, facts: MemberFacts, limits: Limits
) -> tuple[Member, ...] | None:
    """A learner as a voter, under the disk it has now. None: it is one already.

    Raises UNKNOWN_MEMBER; CHANGE_REFUSED when it is not connected, in doubt, or lags more than
    ``max_transfer_lag_frames``: with its vote needed at once, appends would wait for it.
    """
    member = membership.get(node_id)
    if member.voter:
        return None
    if not facts.is_connected:
        raise _refused(f"{node_id} is not connected: start it, or wait until it has joined", waits_for="connection")
    if not facts.counts:
        raise _refused(f"{node_id} is in doubt, its disk is not the one that was admitted: readmit it first")
    if facts.lag_frames > limits.max_transfer_lag_frames:
        raise _refused(
            f"{node_id} is {facts.lag_frames} frames behind, {limits.max_transfer_lag_frames} are allowed: wait until "
            "it has caught up",
            waits_for="catch_up",
        )
    return membership.replaced(
        member._replace(
            voter=True,
            node_uuid=facts.node_uuid or member.node_uuid,
            admitted_start_count=facts.start_count or member.admitted_start_count,
        )
    )


def plan_remove(
    membership: Membership, node_id: NodeId, leader_id: NodeId, facts: Mapping[NodeId, MemberFacts]
) -> tuple[Member, ...] | None:
    """The members without ``node_id``. None: it is no member.

    ``facts`` of all others than the leader. A leader that is to be removed is checked here like any other, and must
    then hand the leadership over, for the next leader to remove it. Were it to append its own removal and stop there,
    nobody could be elected: its log would be the longest, and it would not stand any more. Raises CHANGE_REFUSED when
    no voter, or no majority of connected voters that count, would remain.
    """
    member = membership.members.get(node_id)
    if member is None:
        return None
    if member.voter:
        _check_voters_remain(membership, node_id, leader_id, facts)
    return tuple(each for each in membership.members.values() if each.id != node_id)


def plan_readmit(
    membership: Membership, node_id: NodeId, leader_id: NodeId, facts: Mapping[NodeId, MemberFacts]
) -> tuple[Member, ...] | None:
    """A member whose disk is another one, or an older state, as a learner with the disk it has now. None: it is not
    in doubt, and has the disk that was admitted.

    ``facts`` of all others than the leader. Raises UNKNOWN_MEMBER; CHANGE_REFUSED when it leads, is not connected, or
    was a voter and no majority of connected voters that count would remain.
    """
    member = membership.get(node_id)
    if node_id == leader_id:
        raise _refused(f"{node_id} leads, and nobody is in doubt of itself: transfer the leadership and ask again")
    fact = facts.get(node_id, UNHEARD)
    if not fact.is_connected or not fact.node_uuid:
        raise _refused(
            f"{node_id} is not connected: start it first, it is admitted with the disk it has then",
            waits_for="connection",
        )
    if fact.counts and member.node_uuid in (b"", fact.node_uuid):
        return None
    if member.voter:
        _check_voters_remain(membership, node_id, leader_id, facts)
    return membership.replaced(
        member._replace(voter=False, node_uuid=fact.node_uuid, admitted_start_count=fact.start_count)
    )


def _check_voters_remain(
    membership: Membership, leaving: NodeId, leader_id: NodeId, facts: Mapping[NodeId, MemberFacts]
) -> None:
    remaining = membership.voters - {leaving}
    if not remaining:
        raise _refused(f"{leaving} is the last voter: promote another first")
    healthy = {
        voter
        for voter in remaining
        if voter == leader_id or ((fact := facts.get(voter, UNHEARD)).is_connected and fact.counts)
    }
    if len(healthy) < majority(len(remaining)):
        missing = ", ".join(sorted(remaining - healthy))
        raise _refused(
            f"of the {len(remaining)} voters that would remain, {missing} cannot be relied on (not connected, or in "
            "doubt), and the others are no majority: bring them back, or remove one of them first"
        )


def _refused(why: str, **metadata: str) -> DLedgerError:
    """``waits_for`` in the metadata: it passes by itself, so that whoever asks may wait for it."""
    return error(Code.CHANGE_REFUSED, why, **metadata)
