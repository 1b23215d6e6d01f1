"""Which sentences a page of Markdown has."""

from __future__ import annotations

import pytest

from tests.words.pages import Sentence, long_share, sentences


def texts(page: str) -> list[str]:
    return [each.text for each in sentences(page)]


@pytest.mark.parametrize("end", [".", "!", "?"])
def test_a_sentence_ends_at_its_mark_before_a_space(end: str) -> None:
    assert texts(f"The leader is gone{end} It comes back.") == [f"The leader is gone{end}", "It comes back."]


def test_a_full_stop_within_a_word_ends_nothing() -> None:
    assert texts("Version 0.1.0 of raft.proto") == ["Version 0.1.0 of raft.proto"]


def test_a_sentence_goes_on_behind_the_end_of_a_line() -> None:
    assert texts("The leader\nis gone.") == ["The leader is gone."]


@pytest.mark.parametrize("second", ["\nTwo", "- Two", "  * Two", "2. Two", "## Two", "> Two"])
def test_a_block_ends_a_sentence(second: str) -> None:
    assert [each.removeprefix("> ") for each in texts(f"One\n{second}")] == ["One", "Two"]


def test_each_cell_of_a_table_is_a_block() -> None:
    assert texts("| one | two |\n|---|---|\n| three | |") == ["one", "two", "three"]


def test_a_bar_in_code_ends_no_cell() -> None:
    assert texts("| `a | b` |") == ["code"]


def test_fenced_code_is_left_out() -> None:
    assert texts("One\n```python\nif a:\n    - b. C\n```\nTwo") == ["One", "Two"]


def test_a_drawing_behind_two_colons_is_left_out() -> None:
    assert texts("Drawn so::\n\n    a ── b. C\n\n      d\n\nTwo") == ["Drawn so::", "Two"]


@pytest.mark.parametrize("first", ["Drawn so::", "Drawn so::\n"])
def test_a_drawing_in_a_function_ends_with_its_indentation(first: str) -> None:
    assert texts(f"{first}\n        a ── b\n\n    Two") == ["Drawn so::", "Two"]


def test_inline_code_is_one_word() -> None:
    assert sentences("Call `log.append(a, b)` and ``a ` b``.")[0].length == 4


def test_inline_code_may_reach_over_the_end_of_a_line() -> None:
    assert texts("Call `dledger admin\ntransfer`.") == ["Call code."]


def test_a_link_counts_by_its_text() -> None:
    assert texts("See [the tour](ARCHITECTURE.md#a-tour. It) first.") == ["See the tour first."]


def test_signs_alone_are_no_words() -> None:
    assert Sentence(1, "a · b – c | 3").length == 4


def test_a_sentence_knows_the_line_of_its_block() -> None:
    assert [each.line for each in sentences("# One\n\nTwo\nfour. Five.\n- Six", 10)] == [10, 11, 11, 14]


def test_the_share_counts_sentences_of_more_than_the_bound() -> None:
    assert long_share(sentences("One two three. One two. One. One."), 2) == 25.0


def test_a_page_without_a_sentence_has_no_long_one() -> None:
    assert long_share([], 30) == 0.0
