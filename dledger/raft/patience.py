"""How long a leader waits for a follower's answers where nobody knows how far away it is."""

from __future__ import annotations

LIMIT = 2
"""No wait is more than so many times the first one. It begins with what came last, and that may be late, too: what was
lost on a connection that stays is to be sent again within seconds all the same."""
MARGIN = 4
"""How much longer than the last acknowledgement took the next one may."""


class Patience:
    """Twice as long after an answer that did not come in time, and ``MARGIN`` times what the last acknowledged push
    took at most: a distant or a slow node gets its time, and one that is fast again is waited for as at first."""

    __slots__ = ("_first_ms", "wait_ms")

    def __init__(self, first_ms: float) -> None:
        self._first_ms = first_ms
        self.wait_ms = first_ms

    def give_up(self) -> None:
        """No answer came within ``wait_ms``."""
        self.wait_ms = min(2 * self.wait_ms, LIMIT * self._first_ms)

    def acknowledged(self, took_ms: float) -> None:
        self.wait_ms = max(self._first_ms, min(self.wait_ms, MARGIN * took_ms))

    def forget(self) -> None:
        """The connection is another one."""
        self.wait_ms = self._first_ms
