"""The bounds that keep pages and docstrings plain. ``python -m tests.words --list`` shows the sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.words.__main__ import ROOT, guessed, main, pages, share_of

READ_FIRST = ("README.md", "ARCHITECTURE.md", "docs/admin.md")
READ_FIRST_BOUND = 5.0
"""In percent: sentences of more than 30 words on the pages that everybody reads."""
PAGES_BOUND = 10.0
"""The same on every other page."""
GUESSED_BOUND = 3.30
"""Of 100 words of docstrings, those that leave the actor to be guessed. It is never to rise."""
GUESSED_SLACK = 0.25

ELSEWHERE = [str(page.relative_to(ROOT)) for page in pages() if str(page.relative_to(ROOT)) not in READ_FIRST]


@pytest.mark.parametrize("page", READ_FIRST)
def test_a_page_that_everybody_reads_has_hardly_a_long_sentence(page: str) -> None:
    assert share_of(ROOT / page) < READ_FIRST_BOUND, f"see: python -m tests.words --list {page}"


@pytest.mark.parametrize("page", ELSEWHERE)
def test_any_other_page_has_few_long_sentences(page: str) -> None:
    assert share_of(ROOT / page) < PAGES_BOUND, f"see: python -m tests.words --list {page}"


def test_docstrings_name_the_actor_as_often_as_before() -> None:
    assert guessed() <= GUESSED_BOUND


def test_the_bound_of_docstrings_follows_what_was_reached() -> None:
    assert guessed() > GUESSED_BOUND - GUESSED_SLACK, f"lower GUESSED_BOUND to {guessed() + 0.01:.2f}"


def test_the_list_shows_the_long_sentences_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Short.\n\n{'word ' * 31}.")
    monkeypatch.setattr("tests.words.__main__.ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["words", "--list", str(page)])
    main()
    assert capsys.readouterr().out.startswith("page.md:2: 31 words: word word")
