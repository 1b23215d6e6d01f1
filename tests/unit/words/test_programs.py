"""Which docstrings and comments a program has, and which of their words are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.words.programs import GUESSED, Text, comments, docstrings, guessed_per_100


@pytest.mark.parametrize(
    "source",
    [
        '"""Said."""',
        'class A:\n    """Said."""',
        'def a():\n    """Said."""',
        'async def a():\n    """Said."""',
        'a = 1\n"""Said."""',
        'class A:\n    a: int\n    """Said."""',
    ],
)
def test_a_docstring_is_of_a_module_a_class_a_function_or_a_name(source: str) -> None:
    assert [each.text for each in docstrings(source)] == ["Said."]


@pytest.mark.parametrize("source", ["a = 'not said'", "if a:\n    'not said'", "f = lambda: 'not said'"])
def test_any_other_string_is_none(source: str) -> None:
    assert docstrings(source) == []


def test_a_docstring_knows_its_line() -> None:
    assert [each.line for each in docstrings('a = 1\n\n\ndef b():\n    """Said."""')] == [5]


def test_comments_of_successive_lines_are_one(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("# One\n# two\na = '# no comment'\n\nb = 1  # Three\n")
    assert comments(program) == [Text(1, "One\ntwo"), Text(5, "Three")]


@pytest.mark.parametrize("word", sorted(GUESSED))
def test_each_word_that_leaves_the_actor_to_be_guessed_counts(word: str) -> None:
    assert guessed_per_100([Text(1, f"The leader, {word.title()} ends.")]) == 25.0


def test_a_word_that_only_begins_like_one_does_not_count() -> None:
    assert guessed_per_100([Text(1, "whatsoever thatched somewhere")]) == 0.0


def test_without_a_word_nothing_is_guessed() -> None:
    assert guessed_per_100([]) == 0.0
