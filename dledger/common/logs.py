"""Structured logs on the standard library's logging: one line an event, on stderr.

    log.info("became leader", extra={"node": "n0", "term": 3})

reads, as text and as JSON::

    2026-11-21T00:52:07.123Z info  dledger.server: became leader node=n0 term=3
    {"time":"2026-11-21T00:52:07.123Z","level":"info","logger":"dledger.server","event":"became leader","node":"n0",…}

A traceback is one more field, ``exception``. Nothing a peer or a client sends can begin a line of its own.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from dledger.common.errors import Code, error
from dledger.common.log_lines import LogLines, stderr_writer

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:;/+@%#*()[]<>~^!?|&$")


class TextFormatter(logging.Formatter):
    """For people, and for ``grep``: the event in words, its fields as logfmt."""

    def format(self, record: logging.LogRecord) -> str:
        event = _one_line(record.getMessage())
        fields = "".join(f" {key}={_logfmt(value)}" for key, value in _fields(record, self).items())
        return f"{_time(record)} {record.levelname.lower():<5} {record.name}: {event}{fields}"


class JsonFormatter(logging.Formatter):
    """For machines: one object a line."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        # First for the reader, and again last, so that no field can pose as one of these four.
        fields = event | _fields(record, self) | event
        return json.dumps(fields, default=_plain, separators=(",", ":"), ensure_ascii=False)


_LIBRARIES = ("asyncio", "concurrent", "grpc")
"""What they say at debug is about their own insides: event loops by number, several lines a second."""

_FORMATTERS = {"text": TextFormatter, "json": JsonFormatter}


def setup_logging(format: str = "text", level: str = "info") -> None:  # noqa: A002 (the option's name)
    """Sends this process's logs to stderr, in place of what an earlier call set up. A thread writes them: a reader of
    stderr that stops reading holds up nothing else.

    For programs only: a library's host sets up its own. Raises CONFIG_ERROR for an unknown format or level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise error(Code.CONFIG_ERROR, f"{level!r} is not a log level: use debug, info, warning or error")
    if format not in _FORMATTERS:
        raise error(Code.CONFIG_ERROR, f"{format!r} is not a log format: use text or json")
    handler = LogLines(stderr_writer())
    handler.setFormatter(_FORMATTERS[format]())
    logging.basicConfig(level=number, handlers=[handler], force=True)
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(max(number, logging.INFO))


def setup_default_logging() -> None:
    """For a program that has set up no logs: warnings go to stderr, with their fields. Python's own last resort leaves
    the fields out."""
    ours = logging.getLogger("dledger")
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setLevel(logging.WARNING)
        handler.setFormatter(TextFormatter())
        ours.addHandler(handler)


def _fields(record: logging.LogRecord, formatter: logging.Formatter) -> dict[str, Any]:
    """What ``extra`` added, in the order given, and the exception."""
    fields = {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}
    if record.exc_info:
        fields["exception"] = formatter.formatException(record.exc_info)
    return fields


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)[1:-1]


def _logfmt(value: object) -> str:
    text = _word(_in_words(value))
    return text if text and _PLAIN.issuperset(text) else json.dumps(text, ensure_ascii=False)


def _in_words(value: object) -> object:
    """Lists as ``n1,n2``, and tables as ``n1=10,n2=5``: what a person would write."""
    match value:
        case dict():
            return ",".join(f"{_word(key)}={_word(each)}" for key, each in value.items())
        case list() | tuple():
            return ",".join(map(_word, value))
        case _:
            return _plain(value)


def _word(value: object) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, default=_plain, ensure_ascii=False)


def _plain(value: object) -> object:
    """What JSON can hold: enums by value, bytes in hex, everything else as it says itself."""
    match value:
        case Enum():
            return value.value
        case bytes() | bytearray() | memoryview():
            return value.hex()
        case None | bool() | int() | float() | str() | list() | tuple() | dict():
            return value
        case _:
            return str(value)
