"""What the operations of ``log.admin`` and ``cluster.groups`` return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dledger.common.types import GroupSettings, Member, NodeId, PreferredLeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dledger.v1 import admin_pb2, raft_pb2


class MembershipChange(NamedTuple):
    """The members after a change; for a dry run, as they would be."""

    members: tuple[Member, ...]
    position: int
    """Of the frame that says so, committed; 0 when nothing was changed: a dry run, or it was so already."""
    may_be_earlier: bool = False
    """It was so already. An earlier attempt of the same call, with a lost answer, may have made it so."""

    @property
    def voters(self) -> tuple[str, ...]:
        """The ids of those that vote."""
        return tuple(member.id for member in self.members if member.voter)

    @property
    def learners(self) -> tuple[str, ...]:
        """The ids of those that only replicate."""
        return tuple(member.id for member in self.members if not member.voter)

    @staticmethod
    def from_wire(change: admin_pb2.MembershipChange, *, may_be_earlier: bool = False) -> MembershipChange:
        return MembershipChange(
            members_from_wire(change.members), change.position, may_be_earlier and not change.position
        )


class GroupInfo(NamedTuple):
    """A group as the directory of groups has it. ``Log.status`` tells its leader, and how far its members are."""

    name: str
    id: int
    """Never used twice: a group that was deleted and made again has another one."""
    founders: tuple[Member, ...]
    """The voters it was made with, each with its disk at that time."""
    members: tuple[Member, ...] = ()
    """As the leader of the group told the directory last: a moment after each change."""

    @property
    def voters(self) -> tuple[str, ...]:
        """The ids of those that vote."""
        return tuple(member.id for member in self.members if member.voter)

    @property
    def learners(self) -> tuple[str, ...]:
        """The ids of those that only replicate."""
        return tuple(member.id for member in self.members if not member.voter)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the documented fields."""
        founders = [{"id": each.id, "peer_address": each.peer_address} for each in self.founders]
        members = [{"id": each.id, "peer_address": each.peer_address, "voter": each.voter} for each in self.members]
        return {"name": self.name, "id": self.id, "founders": founders, "members": members}

    @staticmethod
    def from_wire(group: admin_pb2.GroupInfo) -> GroupInfo:
        return GroupInfo(group.name, group.id, members_from_wire(group.founders), members_from_wire(group.members))


class TrimResult(NamedTuple):
    """What a trim dropped, or would drop."""

    first_index: int
    """The first record that is kept."""
    trimmed_records: int
    trimmed_bytes: int
    """About what is freed on each node."""


class RetentionChange(NamedTuple):
    """The settings after a change, and what the next trim takes by them."""

    settings: GroupSettings
    trimmed_records: int
    trimmed_bytes: int


def members_from_wire(records: Iterable[raft_pb2.MemberRecord]) -> tuple[Member, ...]:
    """As the log has them."""
    return tuple(
        Member(
            NodeId(each.id),
            each.peer_address,
            each.voter,
            each.node_uuid,
            each.admitted_start_count,
            each.admitted_start_nonce,
        )
        for each in records
    )


def settings_from_wire(settings: raft_pb2.GroupSettings) -> GroupSettings:
    """As the log has them."""
    preferred = tuple(PreferredLeader(NodeId(each.id), each.priority) for each in settings.preferred)
    return GroupSettings(preferred, settings.retention_max_age_ms, settings.retention_max_bytes)
