"""What commands print: data on stdout; tables, sizes and progress for people, the latter on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import click

PROGRESS_INTERVAL_S = 0.1
BAR_WIDTH = 28


def print_json(value: Mapping[str, Any]) -> None:
    """One object on one line."""
    click.echo(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def print_fields(word: str, fields: Mapping[str, Any]) -> None:
    """``word key=value …`` on one line, for eyes and ``cut`` alike; a value with a space stands in quotes."""
    click.echo(" ".join([word, *(f"{key}={_field(value)}" for key, value in fields.items())]))


def _field(value: object) -> str:
    text = "-" if value is None else str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text else text


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Aligned columns: numbers to the right, words to the left."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    right = [bool(column) and all(_is_number(cell) for cell in column) for column in zip(*cells, strict=True)]
    right = right or [False] * len(head)
    lines = [
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in (list(head), *cells)
    ]
    return "\n".join([click.style(lines[0], bold=True), *lines[1:]])


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "").replace("-", "").isdigit() or cell in ("", "-")


class Progress:
    """A line on stderr that follows long work; silent unless stderr is a terminal. Use as a context manager."""

    def __init__(self, label: str, total: float | None = None) -> None:
        self._label = label
        self._total = total
        self._shown = sys.stderr.isatty()
        self._next_at = 0.0
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def update(self, done: float, note: str = "") -> None:
        """Shows how far it is, ten times a second at most."""
        now = time.monotonic()
        if self._shown and now >= self._next_at:
            self._next_at = now + PROGRESS_INTERVAL_S
            sys.stderr.write(f"\r\x1b[2K{self._line(done, now)}  {note}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Takes the line away, so that something else may be printed."""
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._next_at = 0.0

    def _line(self, done: float, now: float) -> str:
        if not self._total:
            return f"{self._label}  {now - self._started:.0f} s"
        share = min(1.0, done / self._total)
        filled = round(share * BAR_WIDTH)
        bar = click.style("━" * filled, fg="cyan") + click.style("━" * (BAR_WIDTH - filled), dim=True)
        return f"{self._label}  {bar} {share:4.0%}"
