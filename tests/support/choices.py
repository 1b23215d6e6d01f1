"""What the commands of the proof may be told to do: an empty choice is a mistake, and no proof; and so is a result that
nobody can keep."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import NoReturn


class Parser(ArgumentParser):
    """Says also why what begins with a minus is no value."""

    def error(self, message: str) -> NoReturn:
        if message.endswith("expected one argument"):
            message += ' behind it; what begins with "-" is taken for an option, and nothing here is below zero'
        super().error(message)


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
    if not (first.isdecimal() and end.isdecimal()):
        raise ArgumentTypeError(f"{text!r} is not FIRST:END, two numbers of zero and more, as 0:100")
    if int(first) >= int(end):
        raise ArgumentTypeError(f"there is none in {text!r}: END is not included, so it has to be above FIRST")
    return range(int(first), int(end))


def writable(text: str) -> Path:
    """A file that can be written: what took long is not to be lost at its end. It is left as it is."""
    path = Path(text)
    is_new = not path.exists()
    try:
        path.open("a").close()
    except OSError as reason:
        raise ArgumentTypeError(f"{text!r} cannot be written: {reason.strerror}") from None
    if is_new:
        path.unlink()
    return path
