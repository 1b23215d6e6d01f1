"""What a program of ours is made of."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.support.sources import ROOT


def imported(files: Iterable[Path]) -> set[Path]:
    """They, and every file of ours that they import, wherever in them, or that one of these imports, but for what only
    a type checker reads; with the ``__init__.py`` of each package on the way."""
    found, left = set[Path](), [*files]
    while left:
        file = left.pop()
        if file not in found:
            found.add(file)
            left += _imports(file, file.stat().st_mtime_ns)
    return found


@cache
def _imports(file: Path, _changed_ns: int) -> tuple[Path, ...]:
    paths = (each for name in _names(file) for each in _files(name.split(".")))
    return tuple(dict.fromkeys(path for path in paths if path.is_file()))


def _names(file: Path) -> Iterator[str]:
    for statement in _statements(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            yield from (each.name for each in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            yield from (f"{statement.module}.{each.name}" for each in statement.names)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    for child in node.orelse if isinstance(node, ast.If) and is_for_types else ast.iter_child_nodes(node):
        yield from _statements(child)


def _files(parts: list[str]) -> Iterator[Path]:
    """Where a module of this name is, or the last part is a name in one; and the packages that it is in."""
    for count in range(1, len(parts) + 1):
        path = ROOT.joinpath(*parts[:count])
        yield from (path.with_suffix(".py"), path / "__init__.py")
