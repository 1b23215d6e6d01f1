"""``python -m dledger.cli.config_doc > docs/config.md``: every setting of a node, from where it is defined.

The flags of ``dledger serve`` tell the settings of a node. The fields of ``Limits`` and ``Timings``, with the text
below each of them, tell the rest.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from itertools import pairwise

import click

from dledger.cli.serve_command import serve
from dledger.cli.units import format_size
from dledger.common.config import Limits, Timings
from dledger.common.config_file import KEYS

HEAD = """# Configuration

`dledger serve` takes each setting as a flag, as a variable, or as a key of the TOML file that `--config` names. A flag
wins over a variable, and a variable over the file. Limits and timings are set in the file alone.

- `dledger config check FILE` says whether a node would start with the file.
- `dledger config show`, with the flags and variables of `dledger serve`, prints each value and where it comes from.

A node reads its settings when it starts. This file is made by `python -m dledger.cli.config_doc`.

## The node

| key | flag | variable | meaning |
|---|---|---|---|
"""

SECTION = """
## `[{name}]`

{purpose}

| key | default | meaning |
|---|---|---|
"""


def config_page() -> str:
    """docs/config.md, whole."""
    rows = (_row(param) for param in serve.params if param.name in KEYS)
    return HEAD + "".join(rows) + _section("limits", Limits) + _section("timings", Timings)


def _row(param: click.Parameter) -> str:
    assert isinstance(param, click.Option)
    return f"| `{param.name}` | `{param.opts[-1]}` | `{param.envvar}` | {_cell(param.help or '')} |\n"


def _section(name: str, section: type[Limits | Timings]) -> str:
    meanings = _texts(section)
    rows = (
        f"| `{each.name}` | {_default(each.name, each.default)} | {_cell(meanings.get(each.name, ''))} |\n"
        for each in fields(section)
    )
    return SECTION.format(name=name, purpose=_cell(section.__doc__ or "")) + "".join(rows)


def _default(name: str, value: object) -> str:
    is_size = "bytes" in name and isinstance(value, int)
    return f"{value} ({format_size(value)})" if is_size and isinstance(value, int) else str(value)


def _texts(section: type[Limits | Timings]) -> dict[str, str]:
    """Field → the text below it in the source."""
    [body] = [each.body for each in ast.parse(inspect.getsource(section)).body if isinstance(each, ast.ClassDef)]
    found = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = str(ast.literal_eval(text.value))
    return found


def _cell(text: str) -> str:
    """On one line, with Markdown's quotes."""
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())


if __name__ == "__main__":
    click.echo(config_page(), nl=False)
