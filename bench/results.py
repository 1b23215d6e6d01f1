"""Where results go: ``bench/results``, as JSON and as tables, with the machine and the program that they are of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench.machine import describe, now, sentence
from bench.report import table

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


def save(name: str, result: Row, rows: Sequence[Row] = (), *, folder: Path = RESULTS, report: str = "") -> None:
    """NAME.json, and NAME.md with the report or the rows' table. No reader ever sees half of one."""
    folder.mkdir(parents=True, exist_ok=True)
    machine = result.get("machine") or {**describe(), "ended": now()}
    _replace(folder / f"{name}.json", json.dumps({"machine": machine} | result, indent=1) + "\n")
    text = report or f"{as_table(rows)}\n{machine['ended']}: {sentence(machine)}\n"
    _replace(folder / f"{name}.md", text)


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    beside.replace(path)


def show(rows: Sequence[Row]) -> None:
    """The rows, for people."""
    click.echo(as_table(rows))


def as_table(rows: Sequence[Row]) -> str:
    """A column a key of the first row."""
    head = list(rows[0])
    return table(head, [[_text(row[key]) for key in head] for row in rows])


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
