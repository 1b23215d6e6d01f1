"""What the scenarios' flags take."""

from __future__ import annotations

import click

from dledger.cli.cluster import MAX_NODES
from dledger.cli.options import Number

LONGEST_S = 24 * 3600

SECONDS = Number(0.1, LONGEST_S)
GIGABYTES = Number(0.001, 10_000)
NODES = click.IntRange(1, MAX_NODES)
ROUNDS = click.IntRange(1)
INFLIGHT = click.IntRange(1)


def names_in(text: str) -> list[str]:
    """Those that commas separate, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
