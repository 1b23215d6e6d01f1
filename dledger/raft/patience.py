"""How long a leader waits for a follower's answers where nobody knows how far away it is."""

from __future__ import annotations

LIMIT = 2
"""No wait is longer than so many times the first one. A wait begins with the last answer, which may itself be late. A
push that is lost while its connection stays must still be sent again within seconds."""
MARGIN = 4
"""How much longer than the last acknowledgement took the next one may."""


class Patience:
    """How long to wait for one follower's next answer (``wait_ms``).

    The wait doubles when an answer is late, so a distant or slow node gets its time. An acknowledged push shortens it
    again to ``MARGIN`` times the time of that push, but never below the first wait.
    """

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
