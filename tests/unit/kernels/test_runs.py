"""The arithmetic on intervals agrees with sets of numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dledger.kernels import runs
from dledger.kernels.history import Column

Pairs = list[tuple[int, int]]


def pairs() -> st.SearchStrategy[Pairs]:
    """Intervals by start and length."""
    return st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=8)


def columns(intervals: Pairs) -> tuple[Column, Column]:
    starts = np.array([start for start, _ in intervals], dtype=np.int64)
    lengths = np.array([length for _, length in intervals], dtype=np.int64)
    return starts, starts + lengths


def numbers(intervals: Pairs) -> list[int]:
    return [start + n for start, length in intervals for n in range(length)]


@given(pairs())
def test_a_union_is_the_set_and_its_parts_neither_touch_nor_overlap(intervals: Pairs) -> None:
    joined = runs.union(*columns(intervals))
    found = [n for start, end in zip(joined.starts, joined.ends, strict=True) for n in range(start, end)]
    assert found == sorted(set(numbers(intervals)))
    assert (joined.starts[1:] > joined.ends[:-1]).all()


@given(pairs())
def test_excess_counts_what_is_there_more_than_once(intervals: Pairs) -> None:
    assert runs.excess(*columns(intervals)) == len(numbers(intervals)) - len(set(numbers(intervals)))
    doubles = [n for n in numbers(intervals) if numbers(intervals).count(n) > 1]
    overlap = runs.first_overlap(*columns(intervals))
    assert (overlap in doubles) if doubles else overlap is None


@given(pairs(), pairs())
def test_what_is_common_and_what_is_missing(one: Pairs, other: Pairs) -> None:
    wanted, cover = runs.union(*columns(one)), runs.union(*columns(other))
    lacking = set(numbers(one)) - set(numbers(other))
    assert runs.common(wanted, cover) == len(set(numbers(one)) & set(numbers(other)))
    assert runs.missing(wanted, cover) == len(lacking)
    assert runs.first_missing(wanted, cover) == min(lacking, default=None)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 5)), max_size=8))
def test_intervals_are_joined_under_their_own_key_only(rows: list[tuple[int, int, int]]) -> None:
    keys = np.array([key for key, _, _ in rows], dtype=np.int64)
    (kept,), starts, ends = runs.coalesce([keys], *columns([(start, length) for _, start, length in rows]))
    for key in range(3):
        mine = kept == key
        found = [n for s, e in zip(starts[mine], ends[mine], strict=True) for n in range(s, e)]
        assert found == sorted(set(numbers([(start, length) for k, start, length in rows if k == key])))
