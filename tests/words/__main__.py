"""``python -m tests.words``: how long the sentences of the pages are, and how plainly docstrings name the actor.

``--list`` shows the sentences: those of pages of more than 30 words, those of docstrings and comments of more than 25.
``tests/unit/words`` has the bounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from tests.words.pages import Sentence, long_share, sentences
from tests.words.programs import comments, docstrings, guessed_per_100

ROOT = Path(__file__).parents[2]
PAGE_WORDS = 30
"""A sentence of a page that has more words is long."""
PROGRAM_WORDS = 25
"""The same of a docstring or a comment."""


def pages() -> list[Path]:
    tour = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md"]
    return [*tour, *sorted((ROOT / "docs").glob("*.md"))]


def programs() -> list[Path]:
    """The product's own files: the stubs in ``v1`` and ``etcdpb`` are generated."""
    package = ROOT / "dledger"
    generated = {package / "v1", package / "etcdpb"}
    return [path for path in sorted(package.rglob("*.py")) if generated.isdisjoint(path.parents)]


def share_of(page: Path) -> float:
    """The share, in percent, of a page's long sentences."""
    return long_share(sentences(page.read_text(encoding="utf-8")), PAGE_WORDS)


def guessed() -> float:
    """Of a hundred words of the product's docstrings, those that leave the actor to be guessed."""
    return guessed_per_100(text for path in programs() for text in docstrings(path.read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.words", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show the long sentences")
    parser.add_argument("only", nargs="*", type=Path, help="list these files alone")
    options = parser.parse_args()
    if options.list:
        for path in [path.resolve() for path in options.only] or [*pages(), *programs()]:
            for each in _long(path):
                print(f"{path.relative_to(ROOT)}:{each.line}: {each.length} words: {each.text}")
        return
    print(f"{f'sentences of more than {PAGE_WORDS} words':36} {'share':>7}")
    for page in pages():
        print(f"{page.relative_to(ROOT)!s:36} {share_of(page):5.1f} %")
    print(f"who, what, where, that … in docstrings: {guessed():.2f} of 100 words")


def _long(path: Path) -> Iterator[Sentence]:
    if path.suffix == ".md":
        yield from (each for each in sentences(path.read_text(encoding="utf-8")) if each.length > PAGE_WORDS)
        return
    texts = sorted([*docstrings(path.read_text(encoding="utf-8")), *comments(path)])
    yield from (each for text in texts for each in text.sentences if each.length > PROGRAM_WORDS)


if __name__ == "__main__":
    main()
