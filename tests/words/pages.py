"""Sentences of a page of Markdown, and of a docstring: what a reader meets between two full stops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

FENCE = re.compile(r"^ *(```|~~~)")
BEGINS = re.compile(r"^\s*(?:[-*+]|\d+\.|#+|>)\s+")
"""A bullet, a numbered step, a heading or a quotation: each is a block of its own."""
RULE = re.compile(r"^[\s|:=-]+$")
CODE = re.compile(r"(`+)(?:.(?!\1))*.\1", re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+")
SAID = re.compile(r"\w")


class Sentence(NamedTuple):
    """Its text on one line, with each inline code as ``code``, and the line of the file on which its block begins."""

    line: int
    text: str

    @property
    def length(self) -> int:
        """In words: what stands between spaces and has a letter or a digit."""
        return sum(bool(SAID.search(word)) for word in self.text.split())


def sentences(page: str, first_line: int = 1) -> list[Sentence]:
    """They end at a full stop, ! or ? before a space, and at a block's end: a blank line, a bullet, a cell of a table.
    Fenced code is left out, and so is a drawing: the indented lines behind ``::``."""
    return [
        sentence
        for line, block in _blocks(_without_drawings(page), first_line)
        for text in SENTENCE_ENDS.split(_plain(block))
        if (sentence := Sentence(line, text)).length
    ]


def _without_drawings(page: str) -> str:
    """The page with blank lines in place of its drawings, so that every line keeps its number."""
    first, *others = page.splitlines() or [""]
    # A docstring's first line stands behind its quotes: it is as far in as the line furthest out.
    margin = min((_indent(line) for line in others if line.strip()), default=0)
    announced_at = margin if _announces(first) else None
    kept = [first]
    for line in others:
        if announced_at is not None and line.strip() and _indent(line) <= announced_at:
            announced_at = None
        kept.append(line if announced_at is None else "")
        if announced_at is None and _announces(line):
            announced_at = _indent(line)
    return "\n".join(kept)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _announces(line: str) -> bool:
    return line.rstrip().endswith("::")


def _plain(block: str) -> str:
    return LINK.sub(r"\1", CODE.sub("code", " ".join(block.split())))


def _blocks(page: str, first_line: int) -> Iterator[tuple[int, str]]:
    block, begun, is_code = "", first_line, False
    for number, line in enumerate(page.splitlines(), first_line):
        is_fence = bool(FENCE.match(line))
        is_row = line.lstrip().startswith("|")
        if is_fence or is_code or is_row or not line.strip() or BEGINS.match(line):
            yield begun, block
            block, begun = "", number
        if is_fence:
            is_code = not is_code
        elif is_row and not is_code:
            yield from ((number, cell) for cell in _cells(line))
        elif not is_code:
            block += f"{BEGINS.sub('', line)}\n"
    yield begun, block


def _cells(row: str) -> list[str]:
    return [] if RULE.match(row) else CODE.sub("code", row).split("|")


def long_share(of: list[Sentence], words: int) -> float:
    """The share, in percent, of sentences of more than so many words."""
    return 100 * sum(each.length > words for each in of) / len(of) if of else 0.0
