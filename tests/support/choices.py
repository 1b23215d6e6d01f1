"""What the commands of the proof may be told to do: an empty choice is a mistake, and no proof."""

from __future__ import annotations

from argparse import ArgumentTypeError


def number(text: str) -> int:
    """A number of zero and more."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a number of zero and more")
    return int(text)


def positive(text: str) -> int:
    """A count of one and more."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of one and more")
    return int(text)


def span(text: str) -> range:
    """``FIRST:END``, the end not included; one at least."""
    first, _, end = text.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise ArgumentTypeError(f"{text!r} is not FIRST:END with a FIRST below END")
    return range(int(first), int(end))
