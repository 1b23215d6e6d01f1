"""Who belongs to a group: voters decide, learners only listen."""

from __future__ import annotations

from collections.abc import Iterable

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
