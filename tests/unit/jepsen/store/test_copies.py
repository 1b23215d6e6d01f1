"""What every node held in the end."""

from __future__ import annotations

from typing import Any

import pytest

from jepsen.store.copies import COPY, check_copies
from jepsen.store.journal import Note


def copy(node: str, **other: Any) -> Note:
    told = {"barrier": 7, "revision": 7, "hashed_at": 7, "compact_revision": -1, "hash": 1}
    return Note(COPY, 0, {"node": node, **told, **other})


def broken(*copies: Note, nodes: int = 2) -> dict[str, int]:
    return {name: number for name, number in check_copies(copies, nodes).violations.items() if number}


def test_equal_copies_of_all_nodes_are_right() -> None:
    assert not broken(copy("n0"), copy("n1", revision=8))
    assert check_copies([copy("n0"), copy("n1")], 2).counts == {"final_reads": 2}


@pytest.mark.parametrize(
    ("copies", "violation"),
    [
        ([copy("n0")], "copies_unread"),
        ([copy("n0"), copy("n1", revision=6)], "copies_behind"),
        ([copy("n0"), copy("n1", hash=2)], "hashes_differ"),
    ],
)
def test_each_difference_is_found(copies: list[Note], violation: str) -> None:
    assert broken(*copies) == {violation: 1}
