"""What the scenarios' flags take."""

from __future__ import annotations

import math
from typing import Any

import click

from dledger.cli.cluster import MAX_NODES

LONGEST_S = 24 * 3600


class Number(click.FloatRange):
    """From ``least`` to ``most``, and no NaN."""

    def __init__(self, least: float, most: float) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number


SECONDS = Number(0.1, LONGEST_S)
GIGABYTES = Number(0.001, 10_000)
NODES = click.IntRange(1, MAX_NODES)
ROUNDS = click.IntRange(1)
INFLIGHT = click.IntRange(1)


def names_in(text: str) -> list[str]:
    """Those that commas separate, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
