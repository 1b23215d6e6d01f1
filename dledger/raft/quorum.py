"""Majorities, as pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable


def majority(voter_count: int) -> int:
    """The smallest number of voters of which any two such sets share one. 1 → 1, 3 → 2, 4 → 3, 5 → 3."""
    return voter_count // 2 + 1


def quorum_value(values: Iterable[int], voter_count: int) -> int:
    """The highest value that a majority of ``voter_count`` voters has reached; those without a value count as 0.

    Of match positions it is the position a majority holds, of rounds the last one a majority has answered.
    """
    ranked = sorted(values, reverse=True)
    needed = majority(voter_count)
    return ranked[needed - 1] if len(ranked) >= needed else 0
