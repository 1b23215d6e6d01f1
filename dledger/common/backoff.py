"""How long to wait before trying again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


class Backoff:
    """Doubling waits with jitter, from ``first_ms`` to ``most_ms``: short enough that a failover is noticed at once."""

    def __init__(self, rng: random.Random, *, first_ms: float = 5, most_ms: float = 200) -> None:
        self._rng = rng
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._next_ms = first_ms

    def next_s(self) -> float:
        """How long to wait now, in seconds."""
        wait_ms = self._next_ms * self._rng.uniform(0.5, 1.0)
        self._next_ms = min(self._next_ms * 2, self._most_ms)
        return wait_ms / 1000

    def reset(self) -> None:
        """Something worked: start over from the shortest wait."""
        self._next_ms = self._first_ms
