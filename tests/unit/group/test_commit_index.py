from __future__ import annotations

import pytest

from dledger.common.types import Position
from dledger.group.reads.commit_index import CommitIndex


def make(*ends: int, index: int = -1, first: int = 1) -> CommitIndex:
    commit = CommitIndex(index)
    for position, end in enumerate(ends, first):
        commit.appended(position, end)
    return commit


def test_nothing_is_committed_at_first() -> None:
    assert make(5).index == -1


def test_a_position_stands_for_the_last_record_of_its_frame() -> None:
    commit = make(3, 7, 8)
    commit.committed(Position(2))
    assert commit.index == 6
    commit.committed(Position(3))
    assert commit.index == 7


def test_a_control_frame_stands_for_the_records_before_it() -> None:
    commit = make(0, 4, 4)
    commit.committed(Position(1))
    assert commit.index == -1
    commit.committed(Position(3))
    assert commit.index == 3


def test_what_was_cut_is_forgotten() -> None:
    commit = make(3, 7, 9)
    commit.truncated(Position(1))
    commit.appended(2, 5)
    commit.committed(Position(2))
    assert commit.index == 4


def test_what_was_there_before_a_restart_is_known_with_the_first_commit_behind_it() -> None:
    commit = make(20, index=9, first=8)
    commit.committed(Position(6))
    assert commit.index == 9, "less than is committed, never more"
    commit.committed(Position(8))
    assert commit.index == 19


def test_the_commit_index_never_falls() -> None:
    commit = make(3, index=9)
    with pytest.raises(AssertionError, match="fell"):
        commit.committed(Position(1))
