"""Ranges of keys, as etcd's requests name them: a key, and where the range ends.

No end: the key alone. The end ``b"\\0"``: all keys from the key on. Anything else: from the key to before the end. A
range whose end is not above its key is empty.
"""

from __future__ import annotations

from typing import NamedTuple

FROM_KEY = b"\0"
"""As ``range_end``: all keys from ``key`` on."""
ALL_KEYS = b"\0"
"""As ``key``, with ``FROM_KEY``: all keys there can be, as none is empty."""


class KeyRange(NamedTuple):
    """All keys k with ``first`` ≤ k < ``end``; an ``end`` of None: of any size."""

    first: bytes
    end: bytes | None

    def __contains__(self, key: object) -> bool:
        assert isinstance(key, bytes)
        return self.first <= key and (self.end is None or key < self.end)

    @property
    def is_empty(self) -> bool:
        return self.end is not None and self.end <= self.first

    @property
    def is_single(self) -> bool:
        """Whether it has room for one key alone."""
        return self.end == self.first + b"\0"

    def overlaps(self, other: KeyRange) -> bool:
        if self.is_empty or other.is_empty:
            return False
        return (self.end is None or other.first < self.end) and (other.end is None or self.first < other.end)


def key_range(key: bytes, range_end: bytes) -> KeyRange:
    """The range that a request means by its ``key`` and ``range_end``."""
    if not range_end:
        return KeyRange(key, key + b"\0")
    if range_end == FROM_KEY:
        return KeyRange(key, None)
    return KeyRange(key, range_end)


def prefix_end(prefix: bytes) -> bytes:
    """The ``range_end`` of all keys that begin with ``prefix``, as etcd's clients compute it."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return FROM_KEY  # no key lies behind all that begin with such a prefix
    return stripped[:-1] + bytes([stripped[-1] + 1])
