"""How long an answer is waited for where nobody knows how far the other node is."""

from __future__ import annotations

LIMIT = 4
"""No wait is more than so many times the first one: what was lost on a connection that stays is asked for again."""


class Patience:
    """Twice as long after each answer that did not come in time, and never more than four times what the last one that
    came took: a distant or a slow node gets its time, and one that answers fast again is waited for as at first."""

    __slots__ = ("_first_ms", "wait_ms")

    def __init__(self, first_ms: float) -> None:
        self._first_ms = first_ms
        self.wait_ms = first_ms

    @property
    def share(self) -> float:
        """1 at first; the part that is to be asked for at a time, so that it fits a slow link, else."""
        return self._first_ms / self.wait_ms

    def give_up(self) -> None:
        """No answer came within ``wait_ms``."""
        self.wait_ms = min(2 * self.wait_ms, LIMIT * self._first_ms)

    def answered(self, took_ms: float) -> None:
        self.wait_ms = max(self._first_ms, min(self.wait_ms, 4 * took_ms))

    def forget(self) -> None:
        """The connection is another one."""
        self.wait_ms = self._first_ms
