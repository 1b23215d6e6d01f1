"""The waits of a client's calls, told to the program with their reasons."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf

from dledger.common.errors import DLedgerError, NotLeader

TELL_INTERVAL_S = 1.0
"""The program hears of a wait at most so often; and of calls without an answer once they have waited for so long."""

OnWait = Callable[[DLedgerError], object]

logger = logging.getLogger(__name__)


class Waits:
    """Hands reasons on to ``on_wait``; None: nobody wants to hear of them."""

    def __init__(self, on_wait: OnWait | None) -> None:
        self._on_wait = on_wait
        self._loop = asyncio.get_running_loop()
        self._next_at = -inf

    def refused(self, refusal: DLedgerError) -> None:
        """A call waits until ``refusal`` has passed. After one with the leader's address no call waits: it asks the
        leader at once."""
        if not isinstance(refusal, NotLeader) or not refusal.leader_address:
            self.tell(refusal)

    def tell(self, reason: DLedgerError) -> None:
        """Some call waits for ``reason``. A failure of the program's function is logged, and holds up no call."""
        if self._on_wait is None or self._loop.time() < self._next_at:
            return
        self._next_at = self._loop.time() + TELL_INTERVAL_S
        try:
            self._on_wait(reason)
        except Exception:
            logger.exception("on_wait failed, it was told: %s", reason)
