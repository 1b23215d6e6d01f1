"""The members of a group: voters decide, learners only listen. And their changes, one at a time.

A ``plan_*`` function looks at the members and at the leader's facts about them. It returns all members after the
change, or None when nothing is to be changed. It raises if something stands in the way, and says so. It changes
nothing: a leader appends the plan as a MEMBERSHIP frame, once ``RaftNode.check_change`` lets it.

Only one voter comes or goes with a change, so any majority before it and any majority after it share a voter. So one
change suffices (Ongaro's dissertation, §4.1), under two conditions. The change before is committed, and the leader has
committed something of its own term: ``RaftNode.check_change`` says why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dledger.common.config import MAX_MEMBERS, NODE_ID, check_reachable, split_address
from dledger.common.errors import Code, ConfigError, DLedgerError, error, quoted
from dledger.common.types import Member, NodeId, NodeStart
from dledger.raft.fitness import UNHEARD, Lack, Measure, MemberFacts, Need
from dledger.raft.quorum import majority


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
            raise error(Code.UNKNOWN_MEMBER, f"{quoted(node_id)} is not a member of the group; its members: {known}")
        return member

    def replaced(self, member: Member) -> tuple[Member, ...]:
        """All members, with ``member`` in the place of the one of its id."""
        return tuple(member if each.id == member.id else each for each in self.members.values())


def plan_add(membership: Membership, node_id: NodeId, peer_address: str) -> tuple[Member, ...] | None:
    """``node_id`` as a learner. None: it is a member at that address already, in either role.

    Raises UNEXPECTED_ARGUMENT: no id, no address, or one of them is another's; CHANGE_REFUSED: there are MAX_MEMBERS.
    """
    _check_id(node_id)
    try:
        place = split_address(peer_address)
        check_reachable(peer_address)
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
    if len(membership.members) >= MAX_MEMBERS:
        raise _refused(
            f"the group has {len(membership.members)} members, and no more than {MAX_MEMBERS} can be: remove one"
        )
    return (*membership.members.values(), Member(node_id, peer_address, voter=False))


def plan_promote(
    membership: Membership, node_id: NodeId, leader_id: NodeId, facts: Mapping[NodeId, MemberFacts], measure: Measure
) -> tuple[Member, ...] | None:
    """A learner as a voter, under the disk it has now. None: it is one already.

    ``facts`` of all others than the leader. Raises UNKNOWN_MEMBER. Raises CHANGE_REFUSED when it is not fit, as appends
    would wait for a vote that is needed at once. Raises CHANGE_REFUSED too when no majority of the voters would be fit.
    """
    member = membership.get(node_id)
    if member.voter:
        return None
    if node_id == leader_id:
        raise _refused(
            f"{node_id} leads, as its log was needed, and hands over to a voter soon: ask again then",
            waits_for="handover",
        )
    fact = facts.get(node_id, UNHEARD)
    lack = measure.lack(fact)
    if lack is not None:
        raise _refused(f"{node_id} {lack.why}: {_REMEDIES[lack.need]}", **_waits_for(lack))
    _check_majority(membership.voters | {node_id}, leader_id, facts, measure)
    return membership.replaced(_admitted(member._replace(voter=True), fact.start))


_REMEDIES = {
    Need.CONNECTION: "start it, or wait until it has joined",
    Need.ANSWER: "see what it is busy with, or restart it",
    Need.IDENTITY: "readmit it first",
    Need.DISK: "make room on it, or restart it on another",
    Need.COMPARED: "wait a moment",
    Need.CATCH_UP: "wait until it has caught up",
}
_PASSES = (Need.CONNECTION, Need.ANSWER, Need.COMPARED, Need.CATCH_UP)


def _waits_for(lack: Lack) -> dict[str, str]:
    return {"waits_for": lack.need.value} if lack.need in _PASSES else {}


def plan_remove(
    membership: Membership, node_id: NodeId, leader_id: NodeId, facts: Mapping[NodeId, MemberFacts], measure: Measure
) -> tuple[Member, ...] | None:
    """The members without ``node_id``. None: it is no member.

    ``facts`` of all others than the leader. A leader that is to be removed is checked here like any other. It must then
    hand the leadership over, for the next leader to remove it. If it appended its own removal and stopped there, nobody
    could be elected. Its log would be the longest, and it would not stand any more. Raises CHANGE_REFUSED when no voter
    would remain, or no majority of the remaining voters is fit. Raises UNEXPECTED_ARGUMENT if no node can have that id.
    """
    _check_id(node_id)
    member = membership.members.get(node_id)
    if member is None:
        return None
    if member.voter:
        _check_majority(membership.voters - {node_id}, leader_id, facts, measure)
    return tuple(each for each in membership.members.values() if each.id != node_id)


def plan_readmit(
    membership: Membership, node_id: NodeId, leader_id: NodeId, facts: Mapping[NodeId, MemberFacts], measure: Measure
) -> tuple[Member, ...] | None:
    """A member with another disk, or an older state of its disk, becomes a learner with its present disk. None: it is
    not in doubt, and has the disk that was admitted.

    ``facts`` of all others than the leader. Raises UNKNOWN_MEMBER; CHANGE_REFUSED when it leads, is not connected, or
    was a voter and no majority of those that remain is fit.
    """
    member = membership.get(node_id)
    if node_id == leader_id:
        raise _refused(f"{node_id} leads, and nobody is in doubt of itself: transfer the leadership and ask again")
    fact = facts.get(node_id, UNHEARD)
    if not fact.is_connected or fact.start is None:
        raise _refused(
            f"{node_id} is not connected: start it first, it is admitted with the disk it has then",
            waits_for="connection",
        )
    if fact.counts and member.node_uuid in (b"", fact.start.node_uuid):
        return None
    if member.voter:
        _check_majority(membership.voters - {node_id}, leader_id, facts, measure)
    return membership.replaced(_admitted(member._replace(voter=False), fact.start))


def _admitted(member: Member, start: NodeStart | None) -> Member:
    """``member`` under the disk it has now; as it was if it never said which."""
    if start is None:
        return member
    return member._replace(
        node_uuid=start.node_uuid, admitted_start_count=start.start_count, admitted_start_nonce=start.start_nonces[-1]
    )


def with_disks(members: Iterable[Member], disks: Mapping[NodeId, bytes]) -> tuple[Member, ...]:
    """``members``, each with its disk named if ``disks`` has one and none is named yet. A node that never met a member
    can then tell from the log whether the member comes with its own disk."""
    return tuple(each if each.node_uuid else each._replace(node_uuid=disks.get(each.id, b"")) for each in members)


def _check_id(node_id: NodeId) -> None:
    if not NODE_ID.fullmatch(node_id):
        raise error(
            Code.UNEXPECTED_ARGUMENT,
            f"{quoted(node_id)} is not a node id: use up to 255 letters, digits, '-', '_' and '.'",
        )


def _check_majority(
    voters: Collection[NodeId], leader_id: NodeId, facts: Mapping[NodeId, MemberFacts], measure: Measure
) -> None:
    """Raises CHANGE_REFUSED unless a majority of the future ``voters`` is fit: else nothing could be committed any
    more, not even the change itself."""
    if not voters:
        raise _refused("the last voter stays: promote another first")
    lacks = {
        voter: lack
        for voter in sorted(voters)
        if voter != leader_id and (lack := measure.lack(facts.get(voter, UNHEARD))) is not None
    }
    fit, needed = len(voters) - len(lacks), majority(len(voters))
    if fit < needed:
        told = "; ".join(f"{voter} {lack.why}" for voter, lack in lacks.items())
        passes = all(lack.need in (Need.COMPARED, Need.CATCH_UP) for lack in lacks.values())
        raise _refused(
            f"of the {len(voters)} voters that there would be {needed} must be fit, and {fit} would: {told}; mend "
            "that, or remove one of those first",
            **({"waits_for": Need.CATCH_UP.value} if passes else {}),
        )


def _refused(why: str, **metadata: str) -> DLedgerError:
    """``waits_for`` in the metadata: the obstacle passes by itself, so the caller may wait for it."""
    return error(Code.CHANGE_REFUSED, why, **metadata)
