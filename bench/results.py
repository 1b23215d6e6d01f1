"""Where results go: ``bench/results``, as JSON and as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench.report import table

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


def save(name: str, result: Row, rows: Sequence[Row] = (), *, folder: Path = RESULTS, report: str = "") -> None:
    """NAME.json, and NAME.md with the report or the rows' table."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / f"{name}.md").write_text(report or as_table(rows))


def show(rows: Sequence[Row]) -> None:
    """The rows, for people."""
    click.echo(as_table(rows))


def as_table(rows: Sequence[Row]) -> str:
    """A column a key of the first row."""
    head = list(rows[0])
    return table(head, [[_text(row[key]) for key in head] for row in rows])


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
