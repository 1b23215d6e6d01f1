"""When appends without a producer, which share one frame, are written.

gRPC delivers unary calls one by one, a tenth of a millisecond apart. A frame costs every node as much as several calls
do. So calls that arrive while such a frame is under way wait for it to be answered. With many callers, the next frame
also waits for most of the callers just answered, as they will call again. With 64 callers this triples the appends a
second. With few callers nothing waits. A caller that stays away is soon no longer waited for.

The number of callers is not known: most of their calls may wait in gRPC, unread, while the frames of a few come and go.
So from time to time a frame waits for as long as calls keep coming, and they are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

MAX_GATHER_S = 0.01
"""The longest wait while no other call arrives. Without a quorum, calls must not wait for the frame under way for
ever."""
MAX_WAIT_S = 0.05
"""The longest wait while calls keep arriving."""
TICK_S = 0.001
"""When nobody came within one, they do not keep coming."""
PER_CALLER_S = 0.0002
"""What gRPC needs, generously, to bring an answer to a caller and his next append back."""
MANY_CALLERS = 8
"""Fewer are not waited for."""
MOST = 0.9
"""Of the callers: the frame goes when so many are there, and the last ones come while it is under way."""
KEPT = 0.75
"""Of an estimate of the callers when too few of them came back in time. It may be a hiccup of theirs."""
COUNT_EVERY_FRAMES, COUNT_SELDOM_FRAMES = 16, 1024
"""After the first number of frames, all callers are waited for and counted. If no more are found than were known, the
next count comes after twice as many frames, up to the second number."""


class AppendCoalescer:
    """Counts the callers that wait here. ``go`` is called when their appends are to be written and no other call came
    just then."""

    def __init__(self, loop: asyncio.AbstractEventLoop, go: Callable[[], None]) -> None:
        self._loop = loop
        self._go = go
        self._here = 0
        self._gone = 0
        """With the last frame."""
        self._under_way: asyncio.Future[Any] | None = None
        self._callers = 0.0
        """How many callers there seem to be, with those that were answered and are on their way back."""
        self._enough = 0.0
        """While they are waited for: so many are most of them; infinite while they are counted."""
        self._since_s = 0.0
        """When that began."""
        self._seen = 0
        """How many callers were here at the last tick."""
        self._timer: asyncio.TimerHandle | None = None
        self._are_several = False
        """Since they were counted some call came before another one was answered."""
        self._frames = 0
        """Since then."""
        self._count_after = COUNT_EVERY_FRAMES

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
            self._timer = self._loop.call_later(MAX_GATHER_S, self._leave)
        return self.may_go

    def left(self, answered: asyncio.Future[Any]) -> None:
        """All waiting callers share a frame from now on; ``answered`` is done when they are answered, either way."""
        self._stop_waiting()
        self._gone, self._here = self._here, 0
        self._frames += 1
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
        known = self._gone + self._here
        self._callers = max(known, self._callers)
        self._are_several |= known > 1
        if self._are_several and self._frames >= self._count_after:
            self._wait_for(inf)
        elif self._callers >= MANY_CALLERS and self._here < MOST * self._callers:
            self._wait_for(MOST * self._callers)
        elif self._here:
            self._go()

    def _wait_for(self, callers: float) -> None:
        self._enough, self._since_s, self._seen = callers, self._loop.time(), self._here
        self._timer = self._loop.call_later(TICK_S, self._on_tick)

    def _on_tick(self) -> None:
        """Waits on while calls keep arriving, or while answered callers may still be on their way back. Else it
        ends."""
        waited_s = self._loop.time() - self._since_s
        if waited_s < (MAX_WAIT_S if self._here > self._seen else min(self._callers * PER_CALLER_S, MAX_GATHER_S)):
            self._seen = self._here
            self._timer = self._loop.call_later(TICK_S, self._on_tick)
            return
        if self._enough == inf:
            self._counted()
        self._callers = max(self._here, self._callers * KEPT)  # others stay away
        self._leave()

    def _counted(self) -> None:
        is_news = self._here > self._callers
        self._count_after = COUNT_EVERY_FRAMES if is_news else min(2 * self._count_after, COUNT_SELDOM_FRAMES)
        self._frames, self._are_several = 0, False

    def _leave(self) -> None:
        self._stop_waiting()
        if self._here:
            self._go()

    def _stop_waiting(self) -> None:
        self._under_way = None
        self._enough = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
