"""Handlers make large answers in turns: thousands of clients may stand still, and cost the server little memory.

A call waits for its turn before its handler makes an answer (``remade.Remade``). The turn lasts until the client has
taken all of the answer. A client that takes nothing loses the turn as soon as another call waits. The server keeps
little of its answer then, and the handler makes the rest again in a later turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from dledger.common.config import MIB
from dledger.common.futures import release

TURN_BYTES = 2 * MIB
"""A large answer takes so much while a handler makes it: the frames, and the message."""


class Holder(Protocol):
    """A call whose client has not taken all of an answer yet."""

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
        """And how much of their answers was pending at the last look."""
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
            if release(waiting):
                self.held_bytes += TURN_BYTES

    def waits_for_client(self, holder: Holder) -> None:
        self._holders[holder] = holder.pending_bytes
        if holder.is_blocked:
            self.on_blocked(holder)

    def waits_no_more(self, holder: Holder) -> None:
        self._holders.pop(holder, None)

    def on_blocked(self, holder: Holder) -> None:
        """The client has used up its window."""
        if self._waiting and holder in self._holders:
            holder.give_up_rest()

    def look(self) -> None:
        """Once a second: a client without progress since the last look makes room for the calls in the queue."""
        for holder, seen_bytes in list(self._holders.items()):
            if self._waiting and holder.pending_bytes == seen_bytes:
                holder.give_up_rest()
            else:
                self._holders[holder] = holder.pending_bytes
