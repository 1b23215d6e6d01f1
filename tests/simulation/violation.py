"""What a simulation ends with when something happened that must never happen."""

from __future__ import annotations


class Violation(BaseException):
    """An invariant is broken. ``invariant`` is its name. No node that is being watched may take it for a failure of its
    own, so it is no ``Exception``."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
