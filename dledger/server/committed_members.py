"""The members of a group, as its leader tells them to the directory."""

from __future__ import annotations

from dledger.group.replica import Replica
from dledger.node.groups import LogPosition
from dledger.server.meta.group_records import GroupMembers


def committed_members(replica: Replica) -> GroupMembers | None:
    """The members by the committed part of the log. None unless the replica leads, knows the commit position, and no
    change is under way."""
    core, state = replica.core, replica.log.state
    if not replica.leads or not core.is_ready or state.members_position > core.commit_position:
        return None
    as_of = LogPosition(core.commit_position, replica.log.term_at(core.commit_position))
    return GroupMembers(state.members, state.members_position, as_of)
