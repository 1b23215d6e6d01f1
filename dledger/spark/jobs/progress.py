"""How far a job is, for a display."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str, float], None]
"""The present step, and its share done: 0 to 1, or less than 0 if it is unknown."""


def quiet(_what: str, _share: float) -> None:
    """For callers that do not want to know."""
