"""Locks: one holder at a time by the tokens, and a resource whose tokens never fall."""

from __future__ import annotations

import pytest

from dledger.kernels.history import FAIL, INFO, OK
from dledger.kernels.store.locks import FencedWrite, Holding, check_locks


def held(token: int, revision: int, holder: int = 1, lock: str = "l") -> Holding:
    return Holding(token, lock, token, revision, holder)


def write(token: int, revision: int, lock: str = "l") -> FencedWrite:
    return FencedWrite(revision, lock, token, OK, is_accepted=True, revision=revision)


def refused(token: int) -> FencedWrite:
    return FencedWrite(token, "l", token, OK)


def broken(*told: Holding | FencedWrite) -> dict[str, int]:
    found = check_locks(
        (each for each in told if isinstance(each, Holding)), (each for each in told if isinstance(each, FencedWrite))
    )
    return {name: number for name, number in found.violations.items() if number}


RIGHT = (
    held(2, 3),
    write(2, 4),
    write(2, 5),
    held(4, 7, holder=2),
    refused(2),
    write(4, 8),
    held(6, 9, holder=1),
    write(6, 10),
)


def test_a_right_history_is_valid_and_counted() -> None:
    assert not broken(*RIGHT)
    found = check_locks([held(2, 3)], [write(2, 4), refused(2), FencedWrite(9, "l", 2, INFO)])
    assert found.counts == {"holdings": 1, "fenced_writes": 1, "fenced_off": 1}


@pytest.mark.parametrize(
    ("told", "violation"),
    [
        ([held(2, 3), held(2, 5, holder=2)], "shared_tokens"),
        ([held(2, 6), held(4, 5, holder=2)], "out_of_turn"),
        ([held(2, 3), held(4, 7, holder=2), write(4, 8), write(2, 9)], "fallen_tokens"),
        ([held(2, 3), held(4, 7, holder=2), write(2, 8)], "two_holders"),
        ([held(2, 3), held(4, 9, holder=2), held(6, 7, holder=3), write(2, 8)], "two_holders"),
        ([held(2, 5), write(2, 4)], "unheld_writes"),
        ([held(2, 5), write(3, 6)], "unheld_writes"),
    ],
)
def test_each_breach_is_found(told: list[Holding | FencedWrite], violation: str) -> None:
    assert violation in broken(*told)


def test_one_holder_may_be_told_twice() -> None:
    assert not broken(held(2, 3), held(2, 5), write(2, 6))


def test_locks_have_nothing_to_do_with_each_other() -> None:
    assert not broken(held(2, 3), held(4, 5, lock="m"), write(4, 6, lock="m"), write(2, 7))


@pytest.mark.parametrize("outcome", [INFO, FAIL])
def test_a_write_without_an_answer_says_nothing(outcome: str) -> None:
    assert not broken(
        held(2, 3), held(4, 7, holder=2), write(4, 8), FencedWrite(9, "l", 2, outcome, is_accepted=True, revision=9)
    )
