"""Pace: spreads work over time, by its bytes."""

from __future__ import annotations

SLACK_S = 0.05
"""Work that is late by less than this makes up for it with shorter pauses."""


class Pace:
    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._due_s = 0.0
        """The time at which all work so far would be done at that rate."""

    def pause_s(self, size_bytes: int, now_s: float) -> float:
        """How long to wait after so much was done; 0 when that came too late for the rate."""
        self._due_s = max(self._due_s, now_s - SLACK_S) + size_bytes / self._bytes_per_s
        return max(0.0, self._due_s - now_s)
