"""Questions before something is deleted for good."""

from __future__ import annotations

import sys

import click


def is_at_terminal() -> bool:
    """Whether somebody can be asked, and see the question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(sentence: str, question: str) -> None:
    """Says what would happen, and asks. Raises click.Abort unless the answer is yes."""
    click.echo(sentence, err=True)
    click.confirm(question, abort=True, err=True)
