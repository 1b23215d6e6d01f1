"""Keys and values as they are given: bytes, or str, which is sent as UTF-8; and ranges of keys."""

from __future__ import annotations

from typing import NamedTuple

from dledger.common.errors import InvalidRequest

Text = bytes | str
"""A key or a value."""

FROM_KEY = b"\0"
"""As the end of a range: all keys from its first one on."""
MAX_REQUEST_BYTES = 3 << 19
"""1.5 MiB, as etcd's servers take. The store refuses more."""


class KeyRange(NamedTuple):
    """As etcd's requests name it: an empty ``end`` is the key alone."""

    key: bytes
    end: bytes = b""


def as_bytes(what: str, given: object) -> bytes:
    """Raises UNEXPECTED_ARGUMENT unless it is bytes or a str that can be sent."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError as why:
            raise InvalidRequest(f"{what} is {given!r}, which is no text ({why.reason}): give bytes") from None
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise InvalidRequest(f"{what} is {given!r}: give bytes or a str")


def as_key(given: object, what: str = "key") -> bytes:
    """Raises UNEXPECTED_ARGUMENT for what can be no key."""
    key = as_bytes(what, given)
    if not key:
        raise InvalidRequest(f"{what} is empty: a key has one byte at least")
    return key


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with ``prefix``, as etcd's clients compute it."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return FROM_KEY  # no key lies behind all that begin with such a prefix
    return stripped[:-1] + bytes([stripped[-1] + 1])


def prefix_range(prefix: object) -> KeyRange:
    """All keys that begin so; an empty prefix: all keys."""
    first = as_bytes("prefix", prefix)
    return KeyRange(first or b"\0", prefix_end(first))


def range_of(prefix: object = None, start: object = None, end: object = None) -> KeyRange:
    """The range that a call means: those with a ``prefix``, or from ``start`` to before ``end``; nothing: all keys.
    Raises UNEXPECTED_ARGUMENT."""
    if prefix is not None:
        if start is not None or end is not None:
            raise InvalidRequest("prefix and start or end are given: one of the two names the range")
        return prefix_range(prefix)
    first = b"\0" if start is None else as_bytes("start", start) or b"\0"
    last = FROM_KEY if end is None else as_key(end, "end")
    if last != FROM_KEY and last <= first:
        raise InvalidRequest(f"the range ends at {last!r}, and begins at {first!r}: give a start below the end")
    return KeyRange(first, last)


def key_or_prefix(key: object, prefix: object) -> KeyRange:
    """One key, or all that begin with ``prefix``. Raises UNEXPECTED_ARGUMENT unless one of the two is given."""
    if (key is None) == (prefix is None):
        raise InvalidRequest("give a key, or prefix= for all keys that begin so")
    return KeyRange(as_key(key)) if prefix is None else prefix_range(prefix)
