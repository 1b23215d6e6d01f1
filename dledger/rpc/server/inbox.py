"""The requests of one call on the server, from their first byte until the handler takes them."""

from __future__ import annotations

import asyncio
from collections import deque

from dledger.common.futures import release
from dledger.rpc.server.held import HeldRequests
from dledger.rpc.status import StatusCode
from dledger.rpc.wire import Messages, WireFault

MESSAGE_COST_BYTES = 100
"""A message in an inbox takes so much beside its bytes."""


class Inbox:
    """Counts the memory that it takes, in ``held``."""

    __slots__ = ("_counted_bytes", "_held", "_messages", "_queue", "_queue_bytes", "_waits_for_message")

    def __init__(self, max_message_bytes: int, encoding: bytes, held: HeldRequests) -> None:
        self._held = held
        self._messages: Messages | None = Messages(max_message_bytes, encoding)
        """None: nothing more is taken."""
        self._queue: deque[tuple[bytes, int]] = deque()
        """Messages that the handler has not taken yet, and how many bytes of window each holds."""
        self._queue_bytes = 0
        self._counted_bytes = 0
        self._waits_for_message: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, data: bytes, *, is_end: bool, holds_window: bool) -> int:
        """Takes data in, and returns how many bytes of window are to be given back now. ``holds_window``: the messages
        hold it until they are taken, with the last one that of all. Raises WireFault."""
        messages = self._messages
        assert messages is not None, "the call is answered"
        found = messages.feed(data) if data else []
        if is_end and not messages.is_between:
            raise WireFault(StatusCode.INTERNAL, "the request ends within a message")
        size_bytes = len(data)
        for message in found:
            self._queue.append((message, 0))
            self._queue_bytes += len(message) + MESSAGE_COST_BYTES
        if found and holds_window:
            self._queue[-1] = (found[-1], size_bytes)
            size_bytes = 0
        release(self._waits_for_message)
        return size_bytes

    def take(self) -> tuple[bytes, int]:
        """The oldest message, and how many bytes of window are to be given back with it."""
        message, size_bytes = self._queue.popleft()
        self._queue_bytes -= len(message) + MESSAGE_COST_BYTES
        return message, size_bytes

    def count(self) -> str:
        """Tells ``held`` how much there is now. Returns why that is too much; empty: it is not."""
        held_bytes = self._queue_bytes + (self._messages.begun_bytes if self._messages is not None else 0)
        more, self._counted_bytes = held_bytes - self._counted_bytes, held_bytes
        return self._held.add(more) if more else ""

    def let_go(self) -> None:
        """Nothing of it is needed any more."""
        self._messages, self._queue_bytes = None, 0
        self._queue.clear()
        self.count()

    async def changed(self) -> None:
        """Returns when something has come, or ``wake`` is called."""
        self._waits_for_message = asyncio.get_running_loop().create_future()
        await self._waits_for_message

    def wake(self) -> None:
        release(self._waits_for_message)
