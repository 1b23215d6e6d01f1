"""RoomWatch: how much room a file system has, looked at once for all logs that stand on it.

A refusal by the device (ENOSPC, a quota) is a fact, even above the watermarks. It stands until room is proven by taking
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
        self.is_refused = False
        """The device had no room, and has not been seen to have any since."""
        self._is_proven = False
        self._is_proving = False
        self.free_bytes = 0
        """At the last look."""
        self._is_known = False

    def state_below(self, refuse_free_bytes: int) -> DiskState:
        """OK, LOW or FULL, for a log that refuses appends below ``refuse_free_bytes``."""
        if self.is_refused or (self._is_known and self.free_bytes < refuse_free_bytes):
            return DiskState.FULL
        is_low = self._is_known and self.free_bytes < self._limits.disk_warn_free_bytes
        return DiskState.LOW if is_low else DiskState.OK

    def refused(self) -> None:
        """The device had no room for what was to be written."""
        self.is_refused = True

    def look(self) -> bool:
        """Asks for the free space, if that is due. True: room is to be proven as well, and the caller is to call
        ``prove``. That is so once at the start, which also makes the reserve, and while the device is known to be
        full."""
        now_s = self._loop.time()
        if now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + LOOK_INTERVAL_S
        try:
            self.free_bytes = self._ask()
        except OSError as reason:
            logger.warning("the free space is not known", extra={"directory": self._directory, "why": reason})
        else:
            self._is_known = True
        return not self._is_proving and (self.is_refused or not self._is_proven)

    def prove_again(self) -> None:
        """More room is to be kept than before."""
        self._is_proven = False

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
