from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.raft.quorum import majority, quorum_value


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_majority_is_more_than_half(voters: int, needed: int) -> None:
    assert majority(voters) == needed


@given(st.integers(1, 9))
def test_any_two_majorities_share_a_voter(voters: int) -> None:
    quorums = list(combinations(range(voters), majority(voters)))
    assert all(set(a) & set(b) for a in quorums for b in quorums)


@given(st.integers(1, 9))
def test_with_one_voter_less_two_sets_could_miss_each_other(voters: int) -> None:
    assert 2 * (majority(voters) - 1) <= voters


def reached_by(values: list[int], voter_count: int) -> int:
    """By trying every value: the highest that a majority has reached."""
    return max(v for v in [0, *values] if v == 0 or sum(each >= v for each in values) >= majority(voter_count))


@given(st.lists(st.integers(0, 20), max_size=9), st.integers(0, 4))
def test_the_quorum_value_is_the_highest_that_a_majority_has_reached(values: list[int], silent: int) -> None:
    voter_count = max(len(values) + silent, 1)
    assert quorum_value(values, voter_count) == reached_by(values, voter_count)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7), st.data())
def test_the_quorum_value_never_falls_when_a_value_rises(values: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    raised = values.copy()
    raised[at] += data.draw(st.integers(0, 5))
    assert quorum_value(raised, len(values)) >= quorum_value(values, len(values))


def test_voters_without_a_value_count_as_nothing() -> None:
    assert quorum_value([9, 9], 5) == 0
    assert quorum_value([9, 9, 3], 5) == 3
    assert quorum_value([], 3) == 0
