"""RoomWatch: how much room a file system has, looked at once for all logs that stand on it.

What the device says (ENOSPC, a quota) is a fact, whatever the watermarks say: it stands until room is proven by taking
some (``Reserve.prove``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dledger.common.config import Limits
from dledger.common.types import DiskState
from dledger.disk.two_slot import unwritable

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
"""How often the free space is asked for."""


class RoomWatch:
    """One for each file system of a process. ``free_bytes`` and ``prove`` raise OSError; the second is
    ``Reserve.prove``, off the event loop."""

    def __init__(
        self, directory: str, limits: Limits, free_bytes: Callable[[], int], prove: Callable[[], Awaitable[bool]]
    ) -> None:
        self._directory = directory
        self._limits = limits
        self._ask = free_bytes
        self._prove = prove
        self._loop = asyncio.get_running_loop()
        self._next_look_s = 0.0
        self._space = DiskState.OK
        self.is_refused = False
        """The device had no room, and has not been seen to have any since."""
        self._is_proven = False
        self._is_proving = False
        self.free_bytes = 0
        """At the last look."""

    @property
    def state(self) -> DiskState:
        """OK, LOW or FULL."""
        return DiskState.FULL if self.is_refused else self._space

    def refused(self) -> None:
        """The device had no room for what was to be written."""
        self.is_refused = True

    def look(self) -> bool:
        """Asks for the free space, if that is due. True: room is to be proven as well, and the caller is to call
        ``prove``: once at the start, which also makes the reserve, and while the device is known to be full."""
        now_s = self._loop.time()
        if now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + LOOK_INTERVAL_S
        try:
            self.free_bytes = self._ask()
        except OSError as reason:
            logger.warning("the free space is not known", extra={"directory": self._directory, "why": reason})
        else:
            self._space = self._judge()
        return not self._is_proving and (self.is_refused or not self._is_proven)

    def _judge(self) -> DiskState:
        if self.free_bytes < self._limits.disk_refuse_free_bytes:
            return DiskState.FULL
        return DiskState.LOW if self.free_bytes < self._limits.disk_warn_free_bytes else DiskState.OK

    async def prove(self) -> None:
        """Finds out whether there is room to write, by taking some. Raises DISK_ERROR."""
        self._is_proving = True
        try:
            self._is_proven = await self._prove()
        except OSError as reason:
            raise unwritable(self._directory, reason) from reason
        finally:
            self._is_proving = False
        self.is_refused = not self._is_proven
