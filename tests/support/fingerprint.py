"""A name for programs as they are now, so that what was found out about them is not found out again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, DEDENT, INDENT, NEWLINE, NL, STRING, TokenError, TokenInfo, generate_tokens

ROOT = Path(__file__).parents[2]
APART = (ROOT / "dledger" / "spark", ROOT / "dledger" / "kernels")
"""They look at logs and histories from outside: no proof of the log rests on them."""
_MARKS = {NEWLINE: "\n", INDENT: "{", DEDENT: "}"}
"""What ends a statement, or stands between two."""


def fingerprint(places: Iterable[Path]) -> str:
    """16 hex digits, of the paths and contents of files, and of the Python files under directories. Of a program what
    does something counts: another comment, another docstring, and it is the same program still."""
    digest = blake2b(digest_size=8)
    for place in places:
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            if not any(apart in file.parents for apart in APART):
                digest.update(str(file.relative_to(ROOT)).encode() + _content(file, file.stat().st_mtime_ns))
    return digest.hexdigest()


@cache
def _content(file: Path, _changed_ns: int) -> bytes:
    content = file.read_bytes()
    if file.suffix != ".py":
        return content
    try:
        return program(content.decode()).encode()
    except (SyntaxError, TokenError):
        return content  # somebody is in the middle of writing it


def program(source: str) -> str:
    """Python without comments, without strings that are statements, however it is laid out in lines."""
    text, end = "", None
    for token in _that_do_something(source):
        mark = _MARKS.get(token.type)
        is_apart = mark is None and end is not None and end != token.start
        text += mark or " " * is_apart + token.string
        end = token.end if mark is None else None
    return text


def _that_do_something(source: str) -> Iterator[TokenInfo]:
    statement: list[TokenInfo] = []
    for token in generate_tokens(StringIO(source).readline):
        if token.type in (COMMENT, NL):
            continue
        statement.append(token)
        if token.type in _MARKS:
            if [each.type for each in statement] != [STRING, NEWLINE]:
                yield from statement
            statement = []
