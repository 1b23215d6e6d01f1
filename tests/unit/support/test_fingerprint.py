"""What was found out about a program holds while it does the same, whatever is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import fingerprint as fingerprints
from tests.support.fingerprint import ROOT, fingerprint, is_apart, program

PLAIN = '''
import os
LIMIT = 3


def name(of):
    if of:
        return f"{of} # {LIMIT}" "no comment"
    text = """two
lines"""
    return os.fspath(text)
'''
EXPLAINED = '''"""What it is for."""

import os  # of the system

LIMIT = 3
"""Of something."""


def name(of):
    """A name.

    In two paragraphs.
    """
    # why
    if of:
        return f"{of} # {LIMIT}" "no comment"
    text = """two
lines"""

    return os.fspath(text)
'''


def test_comments_docstrings_and_blank_lines_leave_it_the_same_program() -> None:
    assert program(EXPLAINED) == program(PLAIN)


def test_a_string_that_is_used_counts() -> None:
    assert program(PLAIN) != program(PLAIN.replace("no comment", "a comment"))
    assert program(PLAIN) != program(PLAIN.replace("two\nlines", "two\n lines"))
    assert program(PLAIN) != program(PLAIN.replace("two\nlines", "two\n\nlines"))


def test_where_a_block_ends_counts() -> None:
    assert program(PLAIN) != program(PLAIN.replace("    text =", "        text ="))


def test_a_comment_behind_a_docstring_goes_with_it() -> None:
    explained = 'def f():\n    """Does."""  # noqa\n    # no more\n    return 1\n'
    assert program(explained) == program("def f():\n    return 1\n")


def test_how_a_statement_is_laid_out_in_lines_does_not_count() -> None:
    assert program("a = (1 + 2)\n") == program("a = (1\n     + 2)\n")


def test_an_f_string_is_itself_whichever_python_reads_it() -> None:
    """From 3.12 on it is many tokens."""
    source = """told = f"{{ {name!r:>{width}} }} # {f'{inner}'}" f'behind'\n"""
    assert program(source) == source


def test_what_stands_apart_counts_where_it_is_named_alone() -> None:
    judge = ROOT / "dledger" / "kernels" / "checks.py"
    assert is_apart(judge)
    assert fingerprint([judge.parent]) == fingerprint([])
    assert fingerprint([judge]) != fingerprint([])


@pytest.mark.parametrize("source", ['"""Begun', "if x:\n        y\n    z\n", "def f("])
def test_what_somebody_is_in_the_middle_of_writing_has_a_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(fingerprints, "ROOT", tmp_path)
    file = tmp_path / "begun.py"
    file.write_text(source)
    begun = fingerprint([file])
    assert begun != fingerprint([])
