"""Upkeep: one timer for all groups of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Upkeep:
    """Calls the added work at every multiple of ``interval_ms`` on the loop's clock. Leaders send heartbeats at that
    time too, so an idle node wakes up once. The work must not raise. Costs nothing while there is nothing to call."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_s = interval_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._works: dict[Callable[[], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def add(self, work: Callable[[], None]) -> None:
        """``work`` is called now, and again in every interval until it is removed."""
        self._works[work] = None
        if self._timer is None:
            self._arm()
        work()

    def remove(self, work: Callable[[], None]) -> None:
        """Nothing happens when it is not there."""
        self._works.pop(work, None)
        if not self._works and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        # A loop may fire a timer a rounding error early: the same instant does not come twice.
        now_s = max(self._loop.time(), self._due_s)
        self._due_s = (now_s // self._interval_s + 1) * self._interval_s
        self._timer = self._loop.call_at(self._due_s, self._on_timer)

    def _on_timer(self) -> None:
        self._arm()
        for work in list(self._works):
            work()
