"""A line in every node's log for each change that the group's log brings: of the members, and of the settings."""

from __future__ import annotations

import logging

from dledger.common.types import GroupSettings, Member
from dledger.log.log_api import Log

logger = logging.getLogger(__name__)


class ChangeLines:
    """Tells what is new since the last call. A change counts from when it is in the log; one that is cut off again is
    told as a change back."""

    def __init__(self, group: str, log: Log) -> None:
        self._group = group
        self._log = log
        self._members = log.state.members
        self._settings = log.state.settings

    def tell(self) -> None:
        state = self._log.state
        if state.members is not self._members:
            self._tell_members(state.members)
        if state.settings is not self._settings:
            self._tell_settings(state.settings)

    def _tell_members(self, members: tuple[Member, ...]) -> None:
        before, self._members = self._members, members
        if _shown(members) != _shown(before):
            voters = [each.id for each in members if each.voter]
            learners = [each.id for each in members if not each.voter]
            fields = {"group": self._group, "voters": voters, "learners": learners}
            logger.info("the members changed", extra=fields)

    def _tell_settings(self, settings: GroupSettings) -> None:
        before, self._settings = self._settings, settings
        changed = {name: value for name, value in settings._asdict().items() if value != getattr(before, name)}
        if "preferred" in changed:
            changed["preferred"] = {each.id: each.priority for each in settings.preferred}
        if changed:
            logger.info("the settings changed", extra={"group": self._group, **changed})


def _shown(members: tuple[Member, ...]) -> list[tuple[str, str, bool]]:
    """Of members, what an operator chose; their disks are told at founding, and change nothing for people."""
    return [(each.id, each.peer_address, each.voter) for each in members]
