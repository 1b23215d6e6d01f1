"""Large answers are made in turns, so that those which clients do not take need little memory, however many they are.

A call waits for its turn before it makes an answer that could be made anew (``remade.Remade``), and has its turn until
the client has taken all of it. Who takes nothing gives up its turn as soon as another call waits. Little of its answer
is kept then, and the rest is made again in a later turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

TURN_BYTES = 2 * 1024 * 1024
"""What a large answer takes while it is made: what it is made of, and the message."""


class Holder(Protocol):
    """A call with an answer of which a part waits for the client."""

    pending_bytes: int

    @property
    def is_blocked(self) -> bool:
        """The client takes nothing now."""

    def give_up_rest(self) -> None:
        """Its turn has ended."""


class Turns:
    """Of one server."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._holders: dict[Holder, int] = {}
        """And how much of their answers was pending when that was looked at last."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def _has_room(self) -> bool:
        return not self.held_bytes or self.held_bytes + TURN_BYTES <= self._limit_bytes

    async def begin(self) -> int:
        """Returns when there is room, and how much of it was taken."""
        if not self._waiting and self._has_room:
            self.held_bytes += TURN_BYTES
            return TURN_BYTES
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        for holder in list(self._holders):
            if holder.is_blocked:
                holder.give_up_rest()
        try:
            await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled():
                self.hold(-TURN_BYTES)  # it was given already
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            raise
        return TURN_BYTES

    def hold(self, more_bytes: int) -> None:
        """So much more is held, or less: then others have their turn."""
        self.held_bytes += more_bytes
        while self._waiting and self._has_room:
            waiting = self._waiting.popleft()
            if not waiting.done():
                self.held_bytes += TURN_BYTES
                waiting.set_result(None)

    def waits_for_client(self, holder: Holder) -> None:
        self._holders[holder] = holder.pending_bytes
        if holder.is_blocked:
            self.on_blocked(holder)

    def waits_no_more(self, holder: Holder) -> None:
        self._holders.pop(holder, None)

    def on_blocked(self, holder: Holder) -> None:
        """The client has taken all that its window allows."""
        if self._waiting and holder in self._holders:
            holder.give_up_rest()

    def look(self) -> None:
        """Now and then: a client that has not gone on since the last time makes room for those that wait."""
        for holder, seen_bytes in list(self._holders.items()):
            if self._waiting and holder.pending_bytes == seen_bytes:
                holder.give_up_rest()
            else:
                self._holders[holder] = holder.pending_bytes
