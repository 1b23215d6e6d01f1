"""What several rounds gave together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from bench.report import NONE

Row = dict[str, Any]


def over_rounds(rows: Sequence[Row]) -> list[Row]:
    """The rows, and under ``round`` "median", "lowest" and "highest" of each column that has numbers."""
    return [*rows, *(combined(rows, name, by) for name, by in (("median", median), ("lowest", min), ("highest", max)))]


def combined(rows: Sequence[Row], name: str, by: Callable[[list[float]], float]) -> Row:
    """One row called ``name``: each column's numbers by ``by``; ``NONE`` for a column without any."""
    row: Row = {}
    for key in rows[0]:
        numbers = [each[key] for each in rows if isinstance(each[key], int | float)]
        row[key] = round(by(numbers), 3) if numbers else NONE
    return row | {"round": name}
