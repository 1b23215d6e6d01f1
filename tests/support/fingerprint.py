"""A name for programs as they are now, so that what was found out about them is not found out again."""

from __future__ import annotations

import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, DEDENT, INDENT, NEWLINE, NL, STRING, TokenError, TokenInfo, generate_tokens

ROOT = Path(__file__).parents[2]
APART = (ROOT / "dledger" / "spark", ROOT / "dledger" / "kernels")
"""They look at logs and histories from outside: what only starts nodes rests on them where it imports them, or not at
all."""
_F_STRING = tuple(getattr(tokenize, f"FSTRING_{edge}", None) for edge in ("START", "END"))
"""The first and the last token of one, from Python 3.12 on."""
_MARKS = {NEWLINE: "\n", INDENT: "{", DEDENT: "}"}
"""What ends a statement, or stands between two."""


def fingerprint(places: Iterable[Path]) -> str:
    """16 hex digits, of the paths and contents of files, and of the Python files under directories, but for what stands
    APART. Of a program what does something counts: another comment, another docstring, and it is the same program
    still."""
    digest = blake2b(digest_size=8)
    for place in places:
        for file in _under(place) if place.is_dir() else [place]:
            digest.update(str(file.relative_to(ROOT)).encode() + _content(file, file.stat().st_mtime_ns))
    return digest.hexdigest()


def _under(directory: Path) -> list[Path]:
    return [file for file in sorted(directory.rglob("*.py")) if not is_apart(file)]


def is_apart(file: Path) -> bool:
    return any(apart in file.parents for apart in APART)


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


def _tokens(source: str) -> Iterator[TokenInfo]:
    """The same of every Python: an f-string is one of them, as it was before 3.12."""
    lines = source.splitlines(keepends=True)
    begun: list[tuple[int, int]] = []
    for each in generate_tokens(StringIO(source).readline):
        if each.type == _F_STRING[0]:
            begun.append(each.start)
        elif each.type == _F_STRING[1]:
            start = begun.pop()
            if not begun:
                yield TokenInfo(STRING, _between(lines, start, each.end), start, each.end, each.line)
        elif not begun:
            yield each


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    (first, begin), (last, stop) = start, end
    parts = lines[first - 1 : last]
    parts[-1] = parts[-1][:stop]
    parts[0] = parts[0][begin:]
    return "".join(parts)


def _that_do_something(source: str) -> Iterator[TokenInfo]:
    statement: list[TokenInfo] = []
    for token in _tokens(source):
        if token.type in (COMMENT, NL):
            continue
        statement.append(token)
        if token.type in _MARKS:
            if [each.type for each in statement] != [STRING, NEWLINE]:
                yield from statement
            statement = []
