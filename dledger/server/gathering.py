"""When appends without a producer, which share a frame, are to go.

gRPC brings unary calls one by one, a tenth of a millisecond apart, and a frame costs every node as much as several
calls do. So what comes while such a frame is under way waits for it; and where many call, most of those who were just
answered are waited for as well, for they will be back: with 64 callers that is three times as many appends a second.
Few callers wait for nobody, and who stays away is soon waited for no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

MAX_GATHER_S = 0.01
"""Nobody waits longer for others; without a quorum they must not wait for the frame that is under way."""
PER_CALLER_S = 0.0002
"""What gRPC needs, generously, to bring an answer to a caller and his next append back."""
MANY_CALLERS = 8
"""Fewer are not waited for."""
MOST = 0.9
"""Of the callers: the frame goes when so many are there, and the last ones come while it is under way."""
KEPT = 0.75
"""Of an estimate of the callers when too few of them came back in time. It may be a hiccup of theirs."""


class Gathering:
    """Counts those who are there; ``go`` is called when they are to go and nobody came just then."""

    def __init__(self, loop: asyncio.AbstractEventLoop, go: Callable[[], None]) -> None:
        self._loop = loop
        self._go = go
        self._here = 0
        self._gone = 0
        """With the last frame."""
        self._under_way: asyncio.Future[Any] | None = None
        self._callers = 0.0
        """How many there seem to be, those included who were answered and are on their way back."""
        self._enough = 0.0
        """While they are waited for: so many are most of them."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def may_go(self) -> bool:
        """Nothing is waited for."""
        return self._under_way is None and not self._enough

    def came(self) -> bool:
        """One more is there. Whether all are to go now."""
        self._here += 1
        if self._enough and self._here >= self._enough:
            self._stop_waiting()
        if not self.may_go and self._timer is None:
            self._timer = self._loop.call_later(MAX_GATHER_S, self._on_time_out)
        return self.may_go

    def left(self, answered: asyncio.Future[Any]) -> None:
        """All who were there share a frame from now on; ``answered`` is done when they are, either way."""
        self._stop_waiting()
        self._gone, self._here = self._here, 0
        self._under_way = answered
        answered.add_done_callback(self._on_answered)

    def end(self) -> None:
        """Nobody is there any more."""
        self._stop_waiting()
        self._here = 0

    def _on_answered(self, answered: asyncio.Future[Any]) -> None:
        if answered is not self._under_way:
            return
        self._stop_waiting()
        self._callers = max(self._gone + self._here, self._callers)
        if self._callers >= MANY_CALLERS and self._here < MOST * self._callers:
            self._enough = MOST * self._callers
            self._timer = self._loop.call_later(min(self._callers * PER_CALLER_S, MAX_GATHER_S), self._on_time_out)
        elif self._here:
            self._go()

    def _on_time_out(self) -> None:
        if self._enough:
            self._callers = max(self._here, self._callers * KEPT)  # others stay away
        self._stop_waiting()
        if self._here:
            self._go()

    def _stop_waiting(self) -> None:
        self._under_way = None
        self._enough = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
