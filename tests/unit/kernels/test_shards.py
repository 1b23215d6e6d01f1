"""Rows go to the shard that their numbers lie in, whole or in pieces, and nothing is lost on the way."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dledger.kernels import shards
from dledger.kernels.history import column
from dledger.kernels.shards import Shards, blocks_of, in_shards, shards_of

BOUNDS = st.sets(st.integers(-20, 20), max_size=5).map(sorted)
INTERVALS = st.lists(st.tuples(st.integers(-25, 25), st.integers(0, 30)), max_size=8)


def rows_of(intervals: list[tuple[int, int]]) -> pa.Table:
    starts = [start for start, _ in intervals]
    ends = [start + length for start, length in intervals]
    columns = {"whose": range(len(intervals)), "start": starts, "end": ends}
    return pa.table({name: pa.array(list(values), pa.int64()) for name, values in columns.items()})


@given(BOUNDS, INTERVALS)
def test_the_pieces_are_the_whole_and_each_lies_in_its_shard(
    bounds: list[int], intervals: list[tuple[int, int]]
) -> None:
    whole = Shards(np.array(bounds, dtype=np.int64))
    cut, shard = whole.cut(rows_of(intervals))
    pieces = [(row["whose"], n, k) for row, k in zip(cut.to_pylist(), shard, strict=True) for n in _numbers(row)]
    expected = [(whose, n) for whose, (start, length) in enumerate(intervals) for n in range(start, start + length)]
    assert sorted((whose, n) for whose, n, _ in pieces) == expected
    assert all(whole.of(np.array([n]))[0] == k for _, n, k in pieces)


def _numbers(row: dict[str, int]) -> range:
    return range(row["start"], row["end"])


def test_shards_have_about_as_many_rows_each() -> None:
    rows = np.random.default_rng(1).integers(1, 100, 1000)
    blocks = np.arange(1000) * 7
    made = shards_of(blocks, rows, 8)
    each = np.bincount(made.of(blocks * shards.BLOCK), weights=rows)
    assert made.count == 8
    assert each.max() < 1.05 * rows.sum() / 8


def test_rows_that_all_lie_in_one_block_are_one_shard() -> None:
    assert shards_of(np.array([3]), np.array([1_000_000]), 8).count == 1


@given(INTERVALS)
def test_an_interval_touches_the_blocks_that_its_numbers_lie_in(intervals: list[tuple[int, int]]) -> None:
    table = rows_of(intervals)
    with mock.patch.object(shards, "BLOCK", 4):
        block, place = blocks_of(column(table, "start"), column(table, "end"))
    expected = {
        (whose, n // 4) for whose, (start, length) in enumerate(intervals) for n in range(start, start + length)
    }
    assert sorted(zip(place.tolist(), block.tolist(), strict=True)) == sorted(expected)


def test_each_shard_that_has_rows_gets_them_together() -> None:
    table = rows_of([(10, 1), (20, 1), (30, 1), (40, 1)])
    told = {shard: column(rows, "start").tolist() for shard, rows in in_shards(table, np.array([2, 0, 2, 0]))}
    assert told == {0: [20, 40], 2: [10, 30]}
