"""Arithmetic on intervals of whole numbers, ``start`` … ``end`` exclusive, as arrays. Near-linear: each sorts at most.

All functions take intervals in any order, empty ones too, and never look at single numbers within one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dledger.kernels.history import Column, Mask


class Intervals(NamedTuple):
    """Disjoint, not adjacent, ascending."""

    starts: Column
    ends: Column

    @property
    def size(self) -> int:
        """How many numbers lie in them."""
        return int((self.ends - self.starts).sum())


class Keyed(NamedTuple):
    """Intervals that belong to keys, a column for each part of them; those of one key are disjoint and not adjacent.

    Ordered by key, then by start."""

    keys: tuple[Column, ...]
    starts: Column
    ends: Column


def coalesce(keys: Sequence[Column], starts: Column, ends: Column) -> Keyed:
    """Joins what overlaps or touches under the same key."""
    filled = ends > starts
    order = np.flatnonzero(filled)[np.lexsort((starts[filled], *(key[filled] for key in reversed(keys))))]
    keys, starts, ends = tuple(key[order] for key in keys), starts[order], ends[order]
    if not len(order):
        return Keyed(keys, starts, ends)
    is_new_key = changes(*keys)
    reach = running_maximum(is_new_key, ends)
    begins = is_new_key.copy()
    begins[0] = True
    begins[1:] |= starts[1:] > reach[:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order)) - 1
    return Keyed(tuple(key[first] for key in keys), starts[first], reach[last])


def running_maximum(is_new_key: Mask, values: Column) -> Column:
    """The largest value so far under the same key. By rank: a product of keys and values would not fit 64 bits."""
    count = len(values)
    by_value = np.argsort(values, kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[by_value] = np.arange(count)
    floor = np.cumsum(is_new_key) * count
    return np.asarray(values[by_value][np.maximum.accumulate(floor + rank) - floor])


def changes(*keys: Column) -> Mask:
    """Of sorted rows, those with another key than the row before; never the first."""
    changed = np.zeros(len(keys[0]), dtype=np.bool_)
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return changed


def begins(*keys: Column) -> Column:
    """Where each key begins, in sorted rows; of no rows, the place 0 all the same."""
    return np.append(0, np.flatnonzero(changes(*keys)))


def union(starts: Column, ends: Column) -> Intervals:
    """All numbers that lie in at least one."""
    joined = coalesce((np.zeros(len(starts), dtype=np.int64),), starts, ends)
    return Intervals(joined.starts, joined.ends)


def excess(starts: Column, ends: Column) -> int:
    """How often a number lies in more than one: the sum over the numbers of (times − 1)."""
    return int((ends - starts).sum()) - union(starts, ends).size


def first_overlap(starts: Column, ends: Column) -> int | None:
    """A number that lies in two of them, the smallest; None when there is none."""
    filled = ends > starts
    starts, ends = starts[filled], ends[filled]
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    if len(starts) < 2:
        return None
    overlaps = np.flatnonzero(starts[1:] < np.maximum.accumulate(ends)[:-1])
    return int(starts[overlaps[0] + 1]) if len(overlaps) else None


def covered(cover: Intervals, starts: Column, ends: Column) -> Column:
    """Of each interval, how many numbers lie in ``cover``."""
    return np.asarray(_below(cover, np.maximum(starts, ends)) - _below(cover, starts))


def _below(cover: Intervals, bounds: Column) -> Column:
    """How many numbers of ``cover`` are less than each bound."""
    lengths = cover.ends - cover.starts
    before = np.append(0, np.cumsum(lengths))
    place = np.searchsorted(cover.starts, bounds, side="right")
    within = np.zeros(len(bounds), dtype=np.int64)
    inside = place > 0
    at = place[inside] - 1
    within[inside] = np.minimum(bounds[inside] - cover.starts[at], lengths[at]) - lengths[at]
    return np.asarray(before[place] + within)


def common(one: Intervals, other: Intervals) -> int:
    """How many numbers lie in both."""
    return int(covered(one, other.starts, other.ends).sum())


def missing(wanted: Intervals, cover: Intervals) -> int:
    """How many of ``wanted`` do not lie in ``cover``."""
    return wanted.size - common(cover, wanted)


def first_missing(wanted: Intervals, cover: Intervals) -> int | None:
    """The smallest of ``wanted`` outside of ``cover``; None when there is none."""
    held = covered(cover, wanted.starts, wanted.ends)
    lacking = np.flatnonzero(held < wanted.ends - wanted.starts)
    if not len(lacking):
        return None
    start, end = int(wanted.starts[lacking[0]]), int(wanted.ends[lacking[0]])
    while start < end:
        place = int(np.searchsorted(cover.starts, start, side="right")) - 1
        if place < 0 or cover.ends[place] <= start:
            return start
        start = int(cover.ends[place])
    return None
