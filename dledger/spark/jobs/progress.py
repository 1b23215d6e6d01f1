"""How far a job is: told to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str, float], None]
"""What is being done, and how much of it is: 0 to 1, or less than 0 where nobody knows."""


def quiet(_what: str, _share: float) -> None:
    """For those who do not want to know."""
