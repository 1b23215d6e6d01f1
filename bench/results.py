"""Where results go, as JSON and as tables, with the machine and the program that they are of.

``bench/results`` has those that are published: of commands as they are without flags, and of those under ``--publish``.
All others go to ``.bench/results``: a short try replaces nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from bench.machine import describe, now, require_same_program, sentence
from bench.peers.api import BUILT
from bench.report import table
from bench.work import MeasurementFailed

RESULTS = Path(__file__).parent / "results"
UNPUBLISHED = BUILT / "results"
Row = dict[str, Any]


def save(
    name: str,
    result: Row,
    rows: Sequence[Row] = (),
    *,
    folder: Path | None = None,
    is_whole: bool = True,
    report: str = "",
) -> Path:
    """NAME.json, and NAME.md with the report or the rows' table, in ``folder``: by default where results of the command
    under way go, unpublished where it is not whole, or the program was changed meanwhile. No reader ever sees half of
    one. Returns the folder."""
    folder = folder or _folder(click.get_current_context(), is_whole=is_whole)
    try:
        require_same_program()
    except MeasurementFailed as failure:
        click.echo(f"of more than one program: {failure}", err=True)
        folder = UNPUBLISHED if folder == RESULTS else folder
    folder.mkdir(parents=True, exist_ok=True)
    machine = result.get("machine") or {**describe(), "ended": now()}
    replace(folder / f"{name}.json", json.dumps({"machine": machine} | result, indent=1) + "\n")
    text = report or f"{as_table(rows)}\n{machine['ended']}: {sentence(machine)}\n"
    replace(folder / f"{name}.md", text)
    click.echo(f"The results are in {folder}.", err=True)
    return folder


def _folder(command: click.Context, *, is_whole: bool) -> Path:
    has_flags = any(command.get_parameter_source(name) is not ParameterSource.DEFAULT for name in command.params)
    is_wished = command.find_root().params["publish"]
    return RESULTS if is_wished or (is_whole and not has_flags) else UNPUBLISHED


def replace(path: Path, text: str) -> None:
    """Writes the file; no reader ever sees half of it."""
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
