"""Settings: what the whole group agrees on while it runs, changed by SETTINGS frames of its leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dledger.common.errors import Code, error, quoted
from dledger.common.types import GroupSettings, NodeId, PreferredLeader
from dledger.group.context import GroupContext
from dledger.group.leader.appender import Appender
from dledger.group.leader.control_frames import ControlFrames
from dledger.log.frame.control import settings_body
from dledger.log.frame.frame import ControlKind


class Settings:
    """A SETTINGS frame carries all of them, so changes are made one after the other."""

    def __init__(self, context: GroupContext, appender: Appender) -> None:
        self._context = context
        self._frames = ControlFrames(context, appender, ControlKind.SETTINGS, "change of settings")
        self._turn = asyncio.Lock()

    @property
    def current(self) -> GroupSettings:
        """As the log has them, committed or not."""
        return self._context.log.state.settings

    async def set_preferred(self, preferred: Sequence[PreferredLeader], *, dry_run: bool = False) -> GroupSettings:
        """Sets the members that should lead, by priority; empty: none is preferred. Returns the settings once they are
        committed, or as they would be.

        Raises UNKNOWN_MEMBER, UNEXPECTED_ARGUMENT for a member named twice, and what an append raises.
        """
        chosen = tuple(preferred)

        def edit(settings: GroupSettings) -> GroupSettings:
            self._check_members(chosen)
            return settings._replace(preferred=chosen)

        if dry_run:
            self._context.admission.check_leader()
            return edit(self.current)
        return await self.change(edit)

    async def set_machine(self, name: str) -> None:
        """Names the state machine that owns this log, before it appends to the log. Raises the errors of ``change``."""
        await self.change(lambda settings: settings._replace(machine=name))

    async def seal(self) -> None:
        """Refuses every append from now on, for good; returns when that is committed. Raises what ``change`` raises."""
        await self.change(lambda settings: settings._replace(is_sealed=True))

    def _check_members(self, preferred: Sequence[PreferredLeader]) -> None:
        """Raises unless all ``preferred`` are members. Checked when the frame is written, as a member may leave between
        the request and that."""
        members = {member.id for member in self._context.log.state.members}
        ids = [each.id for each in preferred]
        for node_id in ids:
            if node_id not in members:
                raise error(Code.UNKNOWN_MEMBER, f"{quoted(node_id)} is not a member of the group; add it first")
        if len(set(ids)) != len(ids):
            raise error(Code.UNEXPECTED_ARGUMENT, "a member is named twice among the preferred; give it one priority")

    async def drop_preference(self, node_id: NodeId) -> None:
        """Drops the preference for a node that is no member any more: another node may get its id later."""
        if self.current.priority_of(node_id):
            await self.change(
                lambda settings: settings._replace(
                    preferred=tuple(each for each in settings.preferred if each.id != node_id)
                )
            )
        else:
            await self._frames.wait_until_committed()  # what dropped it may be pending

    async def change(self, edit: Callable[[GroupSettings], GroupSettings]) -> GroupSettings:
        """Appends what ``edit`` makes of the present settings, and waits for the commit.

        If nothing would change, nothing is appended. The last SETTINGS frame may not be committed yet, so its commit is
        waited for. Another leader may have changed the settings since, so this one then asks a quorum whether it still
        leads.

        Raises LEADER_NOT_READY, and what an append raises.
        """
        async with self._turn:
            await self._frames.wait_until_free()
            self._context.admission.check_leader()
            if not self._context.core.is_ready:  # what an earlier leader said of them may yet be cut
                raise self._context.admission.not_ready()
            wanted = edit(self.current)
            if wanted == self.current:
                await self._frames.wait_until_committed()
                await self._context.confirm_leadership()
            else:
                await self._frames.append(settings_body(wanted))
            return wanted
