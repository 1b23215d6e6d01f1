"""A long range of whole numbers, in pieces with about as many rows each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dledger.kernels import runs
from dledger.kernels.history import Column, column, picked

BLOCK = 65_536
"""Bounds are multiples of it."""


@dataclass(frozen=True)
class Shards:
    """Shard k holds the numbers from ``bounds[k - 1]`` to below ``bounds[k]``; the first and the last have no end."""

    bounds: Column

    @property
    def count(self) -> int:
        return len(self.bounds) + 1

    def of(self, numbers: Column) -> Column:
        """The shard of each."""
        return np.searchsorted(self.bounds, numbers, side="right")

    def cut(self, rows: pa.Table, start: str = "start", end: str = "end") -> tuple[pa.Table, Column]:
        """Rows that stand for ``start`` … ``end`` (exclusive), split at the bounds; and the shard of each."""
        first = self.of(column(rows, start))
        last = np.maximum(self.of(column(rows, end) - 1), first)
        if (first == last).all():
            return rows, first
        shard, place = _each(first, last - first + 1)
        whole = picked(rows, place)
        begins, ends = column(whole, start), column(whole, end)
        is_later, is_earlier = shard > first[place], shard < last[place]
        if len(self.bounds):
            begins = np.where(is_later, self.bounds[shard - 1], begins)
            ends = np.where(is_earlier, self.bounds[np.minimum(shard, len(self.bounds) - 1)], ends)
        return _replaced(_replaced(whole, start, begins), end, ends), shard


def _replaced(table: pa.Table, name: str, values: Column) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


def shards_of(blocks: Column, rows: Column, count: int) -> Shards:
    """At most ``count`` shards of the numbers in ``blocks`` (ascending), of which each stands for so many rows."""
    if not len(blocks) or count < 2:
        return Shards(np.empty(0, dtype=np.int64))
    before = np.cumsum(rows) - rows
    shares = rows.sum() * np.arange(1, count) // count
    first = np.unique(np.searchsorted(before, shares, side="left"))
    return Shards(blocks[first[(first > 0) & (first < len(blocks))]] * BLOCK)


def block_of(numbers: Column) -> Column:
    """The block that each lies in."""
    return numbers // BLOCK


def blocks_of(start: Column, end: Column) -> tuple[Column, Column]:
    """The blocks that each interval touches, each with the number of its interval. An empty one touches none."""
    first, last = block_of(start), block_of(end - 1)
    return _each(first, np.where(end > start, last - first + 1, 0))


def _each(first: Column, counts: Column) -> tuple[Column, Column]:
    """So many numbers from each of ``first`` on, one behind the other; and which of them each came from."""
    place = np.repeat(np.arange(len(first)), counts)
    return first[place] + np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts), place


def in_shards(rows: pa.Table, shard: Column) -> list[tuple[int, pa.Table]]:
    """The rows of each shard that has some."""
    if not len(shard):
        return []
    if (shard == shard[0]).all():
        return [(int(shard[0]), rows)]
    order = np.argsort(shard, kind="stable")
    ordered, numbers = picked(rows, order), shard[order]
    starts = np.append(runs.begins(numbers), len(numbers))
    return [(int(numbers[start]), ordered.slice(start, end - start)) for start, end in pairwise(starts)]
