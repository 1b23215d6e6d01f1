"""How ``get`` and ``tail`` print a record: as a line, as raw bytes, as JSON, or by a format in kcat's style.

A format is text with ``%`` and a letter for each part of the record (``PARTS``). A backslash stands for a character
that cannot be typed (``\\n``, ``\\t`` …). Nothing is added: a line ends only where the format says ``\\n``.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import click

from dledger.cli.options import Command, add_options, option, output_option
from dledger.common.errors import ConfigError, quoted
from dledger.common.times import format_ms


@dataclass(frozen=True, slots=True)
class Printed:
    """One record."""

    index: int
    term: int
    timestamp_ms: int
    value: bytes


Part = Callable[[Printed], bytes]
Render = Callable[[int, int, int, Sequence[bytes]], bytes]
"""What is printed of consecutive records of one batch: the index of the first, the term, the time, the records."""

PARTS: dict[str, Part] = {
    "o": lambda record: b"%d" % record.index,
    "s": lambda record: record.value,
    "S": lambda record: b"%d" % len(record.value),
    "T": lambda record: b"%d" % record.timestamp_ms,
    "D": lambda record: format_ms(record.timestamp_ms).encode(),
    "E": lambda record: b"%d" % record.term,
    "%": lambda _: b"%",
}
"""By kcat's letters, but for two unknown to kcat: D, and E for the term, which Kafka calls an epoch."""
PARTS_HELP = "%o index, %s record, %S its size, %T time in ms, %D date and time, %E term, %% a percent sign"

_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "e": "\x1b", "0": "\0", "\\": "\\"}
_TOKEN = re.compile(r"%(?P<part>.?)|\\x(?P<hex>[0-9A-Fa-f]{2})|\\(?P<escaped>.?)|(?P<text>[^%\\]+)", re.DOTALL)


class RecordWriter:
    """Writes records to ``out``, as ``render`` gives them."""

    def __init__(self, out: BinaryIO, render: Render) -> None:
        self._out = out
        self._render = render

    def write(self, index: int, term: int, timestamp_ms: int, values: Sequence[bytes]) -> None:
        """Consecutive records of one batch, the first being ``index``; flushed, so that a pipe sees them at once."""
        if not values:
            return
        self._out.write(self._render(index, term, timestamp_ms, values))
        self._out.flush()


def record_options(format_flags: tuple[str, ...]) -> Callable[[Command], Command]:
    """Adds -o, ``format_flags``, --show-index and --show-time, and hands them over as one ``render``."""
    decorators: tuple[Callable[[Any], Any], ...] = (
        output_option("lines", "raw", "json"),
        option(*format_flags, "template", env="FORMAT", metavar="FORMAT", help=f"Each record as: {PARTS_HELP}."),
        option("--show-index", env="SHOW_INDEX", is_flag=True, help="The index before each line, and a tab."),
        option("--show-time", env="SHOW_TIME", is_flag=True, help="The time before each line (UTC), and a tab."),
    )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_render(
            *args: Any, output: str, template: str | None, show_index: bool, show_time: bool, **rest: Any
        ) -> Any:
            chosen = renderer(output, template, show_index=show_index, show_time=show_time)
            return command(*args, render=chosen, **rest)

        result: Command = add_options(with_render, decorators)
        return result

    return decorate


def renderer(output: str, template: str | None, *, show_index: bool = False, show_time: bool = False) -> Render:
    """What the options mean together. Raises click's usage errors, and CONFIG_ERROR for a bad format."""
    shown = [part for part, is_shown in (("%o\\t", show_index), ("%D\\t", show_time)) if is_shown]
    if template is not None and shown:
        raise click.UsageError("--format says all that is printed: leave --show-index and --show-time out.")
    if output != "lines" and (template is not None or shown):
        raise click.UsageError(f"--format, --show-index and --show-time are for lines: leave out -o {output}.")
    if template is not None:
        return by_template(template)
    if shown:
        return by_template("".join(shown) + "%s\\n")
    return _one_by_one(_json_line) if output == "json" else _raw if output == "raw" else _lines


def by_template(template: str) -> Render:
    """Raises CONFIG_ERROR."""
    pieces = [_piece(token, template) for token in _TOKEN.finditer(template)]

    def one(record: Printed) -> bytes:
        return b"".join(piece(record) if callable(piece) else piece for piece in pieces)

    return _one_by_one(one)


def _one_by_one(one: Part) -> Render:
    def render(index: int, term: int, timestamp_ms: int, values: Sequence[bytes]) -> bytes:
        return b"".join(one(Printed(index + i, term, timestamp_ms, value)) for i, value in enumerate(values))

    return render


def _piece(token: re.Match[str], template: str) -> Part | bytes:
    if token["text"] is not None:
        return token["text"].encode(errors="surrogateescape")
    if token["hex"] is not None:
        return bytes.fromhex(token["hex"])
    if token["part"] is not None:
        part = PARTS.get(token["part"])
        if part is None:
            raise ConfigError(f"the format {quoted(template)} has {quoted(token[0])}: there are {PARTS_HELP}")
        return part
    character = _ESCAPED.get(token["escaped"])
    if character is None:
        known = " ".join(f"\\{each}" for each in _ESCAPED)
        raise ConfigError(f"the format {quoted(template)} has {quoted(token[0])}: there are {known} and \\xHH")
    return character.encode()


def _lines(_index: int, _term: int, _timestamp_ms: int, values: Sequence[bytes]) -> bytes:
    return b"\n".join(values) + b"\n"


def _raw(_index: int, _term: int, _timestamp_ms: int, values: Sequence[bytes]) -> bytes:
    return b"".join(values)


def _json_line(record: Printed) -> bytes:
    """The bytes in base64, and as ``text`` too if they are UTF-8."""
    fields = {**asdict(record), "value": base64.b64encode(record.value).decode()}
    with suppress(UnicodeDecodeError):  # it is no text, and "value" has it all
        fields["text"] = record.value.decode()
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
