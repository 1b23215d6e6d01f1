"""Settings: what the whole group agrees on while it runs, changed by SETTINGS frames of its leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dledger.errors import Code, error
from dledger.server.appender import Appender
from dledger.server.context import GroupContext
from dledger.storage.control import settings_body
from dledger.storage.frame import ControlKind
from dledger.types import GroupSettings, PreferredLeader


class Settings:
    """A SETTINGS frame carries all of them, so changes are made one after the other."""

    def __init__(self, context: GroupContext, appender: Appender) -> None:
        self._context = context
        self._appender = appender
        self._turn = asyncio.Lock()

    @property
    def current(self) -> GroupSettings:
        """As the log has them, committed or not."""
        return self._context.log.state.settings

    async def set_preferred(self, preferred: Sequence[PreferredLeader]) -> GroupSettings:
        """Who should lead; empty: whoever leads. Returns the settings once they are committed.

        Raises UNKNOWN_MEMBER, UNEXPECTED_ARGUMENT for a member named twice, and what an append raises.
        """
        self._context.check_leader()
        members = {member.id for member in self._context.log.state.members}
        ids = [each.id for each in preferred]
        for node_id in ids:
            if node_id not in members:
                raise error(Code.UNKNOWN_MEMBER, f"{node_id!r} is not a member of the group; add it first")
        if len(set(ids)) != len(ids):
            raise error(Code.UNEXPECTED_ARGUMENT, "a member is named twice among the preferred; give it one priority")
        chosen = tuple(preferred)
        return await self.change(lambda settings: settings._replace(preferred=chosen))

    async def change(self, edit: Callable[[GroupSettings], GroupSettings]) -> GroupSettings:
        """Appends what ``edit`` makes of the present settings, and waits for the commit; nothing when it is so already.

        Raises what an append raises.
        """
        async with self._turn:
            self._context.check_leader()
            wanted = edit(self.current)
            if wanted != self.current:
                await self._appender.append_control(ControlKind.SETTINGS, settings_body(wanted))
            return wanted
