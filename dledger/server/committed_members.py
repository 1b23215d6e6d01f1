"""Who the members of a group are, as the node that leads it tells the directory."""

from __future__ import annotations

from dledger.group.replica import Replica
from dledger.node.groups import LogPosition
from dledger.server.directory_machine import GroupMembers


def committed_members(replica: Replica) -> GroupMembers | None:
    """Who the members are by the committed part of the log. None unless the replica leads, knows what is committed, and
    no change is under way."""
    core, state = replica.core, replica.log.state
    if not replica.leads or not core.is_ready or state.members_position > core.commit_position:
        return None
    as_of = LogPosition(core.commit_position, replica.log.term_at(core.commit_position))
    return GroupMembers(state.members, state.members_position, as_of)
