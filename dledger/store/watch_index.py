"""Which watchers a key concerns.

A watcher of one key is found by it. Most others are of all keys with a prefix: they are found by the key's beginnings,
of the lengths that are in use. Only ranges of another form are looked at one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

from dledger.store.keys import KeyRange, prefix_end

T = TypeVar("T")
_Group = dict[T, None]
"""A set in the order in which it was filled."""


class WatchIndex(Generic[T]):
    def __init__(self) -> None:
        self._by_key: dict[bytes, _Group[T]] = {}
        self._by_prefix: dict[bytes, _Group[T]] = {}
        self._by_range: dict[KeyRange, _Group[T]] = {}
        self._lengths: Counter[int] = Counter()
        """Of the prefixes."""

    def add(self, of: KeyRange, watcher: T) -> None:
        if of.is_single:
            self._by_key.setdefault(of.first, {})[watcher] = None
        elif _is_prefix(of):
            if of.first not in self._by_prefix:
                self._lengths[len(of.first)] += 1
            self._by_prefix.setdefault(of.first, {})[watcher] = None
        else:
            self._by_range.setdefault(of, {})[watcher] = None

    def remove(self, of: KeyRange, watcher: T) -> None:
        """It is there."""
        if of.is_single:
            _remove(self._by_key, of.first, watcher)
        elif _is_prefix(of):
            _remove(self._by_prefix, of.first, watcher)
            if of.first not in self._by_prefix:
                self._lengths[len(of.first)] -= 1
                self._lengths += Counter()  # lengths that nobody uses are not tried
        else:
            _remove(self._by_range, of, watcher)

    def matching(self, key: bytes) -> Iterator[T]:
        """Each once; to be used up before the next change."""
        yield from self._by_key.get(key, ())
        for length in self._lengths:
            if length <= len(key):
                yield from self._by_prefix.get(key[:length], ())
        for of, group in self._by_range.items():
            if key in of:
                yield from group


K = TypeVar("K")


def _remove(groups: dict[K, _Group[T]], name: K, watcher: T) -> None:
    group = groups[name]
    del group[watcher]
    if not group:
        del groups[name]


def _is_prefix(of: KeyRange) -> bool:
    return of.end is not None and of.end == prefix_end(of.first)
