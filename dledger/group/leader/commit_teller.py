"""Followers of a state machine's log hear of a commit at once.

A commit position travels with the next frames, or else with the next heartbeat, an eighth of a second later. A state
machine on a follower waits for it, with all that was submitted there, and so do its watches. If no frames follow soon,
the leader sends a heartbeat of its own accord; and at once when a node waits for a commit that it has asked for.
"""

from __future__ import annotations

import asyncio

from dledger.common.types import Position
from dledger.group.context import GroupContext

PATIENCE_S = 0.01
"""Frames of the next appends mostly follow within this time. It delays the watches on followers."""


class CommitTeller:
    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._told = Position(0)
        self._timer: asyncio.TimerHandle | None = None

    def sent(self, commit: Position) -> None:
        """Frames left with this commit position."""
        self._told = commit

    def on_commit(self) -> None:
        """The commit position of this leader has advanced."""
        if self._timer is None and self._context.machine.has_machine:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self.tell)

    def tell(self) -> None:
        """Somebody waits for it on another node."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        core = self._context.core
        if core.leadership is not None and core.commit_position > self._told:
            self._told = core.commit_position
            core.leadership.broadcast_heartbeat(self._context.send, core.commit_position)

    def stop(self) -> None:
        """The leadership is over."""
        self._told = Position(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
