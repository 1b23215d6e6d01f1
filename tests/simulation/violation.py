"""What a simulation ends with when something happened that must never happen."""

from __future__ import annotations

import asyncio


class Violation(BaseException):
    """An invariant is broken. ``invariant`` is its name. No node that is being watched may take it for a failure of its
    own, so it is no ``Exception``. Made in a simulated process it ends the world there and then: its task may go with
    the process, and who asked may have left."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        world = getattr(asyncio._get_running_loop(), "world", None)
        if world is not None:
            world.fail(self)
