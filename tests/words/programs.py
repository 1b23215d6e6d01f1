"""Docstrings and comments of Python files, and how often a docstring leaves the actor to be guessed."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.words.pages import Sentence, sentences

GUESSED = frozenset({"who", "whom", "whose", "what", "whatever", "whoever", "where", "which", "that"})
"""Words that stand for an actor, or for a thing with a name, more often than not."""
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Assignment = ast.Assign | ast.AnnAssign


class Text(NamedTuple):
    """A docstring, or a comment of one or several lines, and the line on which it begins."""

    line: int
    text: str

    @property
    def sentences(self) -> list[Sentence]:
        return sentences(self.text, self.line)


def docstrings(source: str) -> list[Text]:
    """Of the module, of its classes and functions, and of names: strings that stand behind an assignment."""
    return [
        Text(node.lineno, node.value)
        for scope in ast.walk(ast.parse(source))
        for statement in _documenting(scope)
        if isinstance(node := statement.value, ast.Constant) and isinstance(node.value, str)
    ]


def _documenting(scope: ast.AST) -> Iterator[ast.Expr]:
    body = getattr(scope, "body", None)
    if not isinstance(body, list):  # a lambda's body is one expression
        return
    if isinstance(scope, Documented) and body and isinstance(body[0], ast.Expr):
        yield body[0]
    for before, statement in pairwise(body):
        if isinstance(before, Assignment) and isinstance(statement, ast.Expr):
            yield statement


def comments(path: Path) -> list[Text]:
    """Comments of successive lines are one."""
    found: list[Text] = []
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type != tokenize.COMMENT:
                continue
            line, text = token.start[0], token.string.lstrip("# ")
            if found and found[-1].line + found[-1].text.count("\n") + 1 == line:
                found[-1] = Text(found[-1].line, f"{found[-1].text}\n{text}")
            else:
                found.append(Text(line, text))
    return found


def guessed_per_100(texts: Iterable[Text]) -> float:
    """How many of a hundred words are of those that leave the actor to be guessed."""
    words = [word.lower() for text in texts for word in WORD.findall(text.text)]
    return 100 * sum(word in GUESSED for word in words) / len(words) if words else 0.0
