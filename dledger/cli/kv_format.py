"""Keys and values as typed, and in JSON: text where they are UTF-8, ``{"base64": "…"}`` where they are not."""

from __future__ import annotations

import base64
import binascii
import sys
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.records import whole
from dledger.common.errors import ConfigError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dledger.client.store import KeyValue

STDIN = 0
MAX_SHOWN_CHARS = 60
"""Of a value, in a table."""
MAX_LEASE = (1 << 63) - 1


def typed(argument: str) -> bytes:
    """What was typed, byte by byte."""
    return argument.encode(errors="surrogateescape")


async def from_stdin() -> bytes:
    return await whole(STDIN)


def as_json(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def from_json(what: str, given: Any) -> bytes:
    """Raises CONFIG_ERROR."""
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{what} is no text: give it as {{'base64': …}}") from None
    if isinstance(given, dict) and given.keys() == {"base64"} and isinstance(given["base64"], str):
        try:
            return base64.b64decode(given["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(f"{what} has {quoted(given['base64'])}, which is no base64: encode it again") from None
    raise ConfigError(f"{what} is {quoted(str(given))}: give text, or {{'base64': …}} for bytes that are none")


def lease_text(lease: int) -> str:
    """As etcdctl writes it: hexadecimal."""
    return f"{lease:x}"


def parse_lease(text: str) -> int:
    """Raises click's usage errors."""
    try:
        lease = int(text, 16)
    except ValueError:
        lease = 0
    if not 0 < lease <= MAX_LEASE:
        raise click.BadParameter(f"{quoted(text)} is no lease: give its id as `lease grant` and `lease list` show it.")
    return lease


def pair_fields(pair: KeyValue) -> dict[str, Any]:
    return {
        "key": as_json(pair.key),
        "value": as_json(pair.value),
        "create_revision": pair.create_revision,
        "mod_revision": pair.mod_revision,
        "version": pair.version,
        "lease": lease_text(pair.lease) if pair.lease else None,
    }


PAIR_HEAD = ("key", "value", "version", "created", "modified", "lease")


def pair_row(pair: KeyValue) -> list[object]:
    lease = lease_text(pair.lease) if pair.lease else "-"
    return [shown(pair.key), shown(pair.value), pair.version, pair.create_revision, pair.mod_revision, lease]


def shown(data: bytes) -> str:
    """On one line, and of a length for a table."""
    text = data.decode(errors="backslashreplace")
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"


def write_raw(parts: Iterable[bytes]) -> None:
    """The bytes as they are; on a terminal with a line's end behind them."""
    out = sys.stdout.buffer
    for part in parts:
        out.write(part)
    if sys.stdout.isatty():
        out.write(b"\n")
    out.flush()
