"""The check of transactions on lists: it agrees with a judge that tries every order, and names each kind of anomaly."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.kernels.history import FAIL, INFO, OK
from dledger.kernels.store.appends import VIOLATIONS, Append, AppendCheck, Read, Step, Transaction
from tests.unit.kernels.store.transactions import Maker, may_be_serializable, spoiled


def r(key: str, elements: str = "") -> Read:
    """A read that showed these elements, a letter each."""
    return Read(key, tuple(elements))


def a(key: str, element: str) -> Append:
    return Append(key, element)


def txn(number: int, at: tuple[int, int], *steps: Step, outcome: str = OK) -> Transaction:
    return Transaction(number, steps, *at, outcome)


def broken(*history: Transaction) -> dict[str, int]:
    return {name: number for name, number in AppendCheck(history).findings.violations.items() if number}


RIGHT = (
    txn(1, (0, 10), a("x", "a"), a("y", "b")),
    txn(2, (5, 15), r("x", "a"), a("x", "c"), r("x", "ac")),
    txn(3, (16, 20), a("x", "d"), outcome=INFO),
    txn(4, (16, 20), a("x", "e"), outcome=FAIL),
    txn(5, (21, 30), r("x", "acd"), r("y", "b"), r("z")),
    txn(6, (31, 40), a("z", "f"), outcome=INFO),
)


def test_a_right_history_is_valid_and_counted() -> None:
    assert not broken(*RIGHT)
    counts = AppendCheck(RIGHT).findings.counts
    assert counts == {"transactions": 3, "transactions_recovered": 1, "elements": 4}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 6), st.sampled_from([0.0, 0.2, 0.6]))
def test_the_check_agrees_with_trying_every_order(seed: int, size: int, unknown: float) -> None:
    random = Random(seed)
    history = Maker(seed, size, unknown=unknown).history()
    assert AppendCheck(history).findings.valid
    for _ in range(3):
        history = spoiled(history, random)
        assert AppendCheck(history).findings.valid == may_be_serializable(history)


SAME = (0, 100)
"""Times at which everything may stand in any order."""


@pytest.mark.parametrize(
    ("history", "violation"),
    [
        pytest.param([txn(1, SAME, r("x", "a"))], "unwritten_elements", id="an element that nobody appended"),
        pytest.param(
            [txn(1, SAME, a("x", "a"), outcome=FAIL), txn(2, SAME, r("x", "a"))],
            "g1a_aborted_reads",
            id="an element of a transaction that failed",
        ),
        pytest.param(
            [txn(1, SAME, a("x", "a"), a("x", "b")), txn(2, SAME, r("x", "a")), txn(3, SAME, r("x", "ab"))],
            "g1b_intermediate_reads",
            id="a transaction that is not over",
        ),
        pytest.param(
            [txn(1, SAME, a("x", "a")), txn(2, SAME, r("x", "aa"))], "doubled_elements", id="an element twice"
        ),
        pytest.param(
            [
                txn(1, SAME, a("x", "a")),
                txn(2, SAME, a("x", "b")),
                txn(3, SAME, r("x", "ab")),
                txn(4, SAME, r("x", "b")),
            ],
            "incompatible_orders",
            id="two orders of one list",
        ),
        pytest.param(
            [txn(1, SAME, a("x", "a"), r("x")), txn(2, SAME, r("x", "a"))],
            "internal_reads",
            id="not its own append",
        ),
        pytest.param(
            [txn(1, SAME, r("x", "a"), a("x", "a"))], "internal_reads", id="its own append, before it was made"
        ),
        pytest.param(
            [
                txn(1, SAME, a("x", "a"), a("y", "c")),
                txn(2, SAME, a("x", "b"), a("y", "d")),
                txn(3, SAME, r("x", "ab"), r("y", "dc")),
            ],
            "g0",
            id="two transactions written into each other",
        ),
        pytest.param(
            [txn(1, SAME, a("x", "a"), r("y", "b")), txn(2, SAME, a("y", "b"), r("x", "a"))],
            "g1c",
            id="each read the other",
        ),
        pytest.param(
            [
                txn(1, SAME, r("x", "a"), a("x", "b")),
                txn(2, SAME, r("x", "a"), a("x", "c")),
                txn(3, SAME, a("x", "a")),
                txn(4, SAME, r("x", "abc")),
            ],
            "g_single",
            id="a lost update",
        ),
        pytest.param(
            [txn(1, SAME, a("x", "a"), a("y", "b")), txn(2, SAME, r("x", "a"), r("y")), txn(3, SAME, r("y", "b"))],
            "g_single",
            id="half of a transaction",
        ),
        pytest.param(
            [
                txn(1, SAME, r("x"), a("y", "b")),
                txn(2, SAME, r("y"), a("x", "a")),
                txn(3, SAME, r("x", "a"), r("y", "b")),
            ],
            "g2",
            id="write skew",
        ),
        pytest.param(
            [txn(1, (0, 10), a("x", "b")), txn(2, (11, 20), a("x", "a")), txn(3, (21, 30), r("x", "ab"))],
            "g0_realtime",
            id="appended before what was there already",
        ),
        pytest.param(
            [txn(1, (0, 10), r("x", "a")), txn(2, (11, 20), a("x", "a"))], "g1c_realtime", id="read before it was"
        ),
        pytest.param(
            [txn(1, (0, 10), a("x", "a")), txn(2, (11, 20), r("x")), txn(3, (21, 30), r("x", "a"))],
            "g_single_realtime",
            id="a stale read",
        ),
        pytest.param([txn(1, (0, 10), a("x", "a")), txn(2, (11, 20), r("x"))], "g_single_realtime", id="a lost append"),
        pytest.param(
            [
                txn(1, (0, 5), r("x"), r("w")),
                txn(2, (6, 30), a("w", "d"), a("y", "b")),
                txn(3, (0, 10), r("y")),
                txn(4, (11, 20), a("x", "a")),
                txn(5, (40, 50), r("w", "d"), r("x", "a"), r("y", "b")),
                txn(6, (21, 25), r("w", "d"), r("x", "a")),
                txn(7, (26, 29), r("y")),
            ],
            "g_single_realtime",
            id="half of a transaction, by its time",
        ),
    ],
)
def test_each_anomaly_is_found(history: list[Transaction], violation: str) -> None:
    assert violation in broken(*history)
    assert violation == "g1b_intermediate_reads" or broken(*history) == {violation: 1}


def test_a_transaction_of_unknown_outcome_is_whole_or_not_there() -> None:
    unknown = txn(1, (0, 1), a("x", "a"), a("y", "b"), outcome=INFO)
    assert not broken(unknown, txn(2, (5, 10), r("x"), r("y")))
    assert not broken(unknown, txn(2, (5, 10), r("x"), r("y")), txn(3, (11, 20), r("x", "a"), r("y", "b")))
    assert broken(unknown, txn(2, (5, 10), r("x", "a"), r("y"))) == {"g_single": 1}


def test_an_example_tells_the_cycle() -> None:
    found = AppendCheck([txn(1, (0, 10), a("x", "a")), txn(2, (11, 20), r("x"))]).findings
    [example] = found.examples
    assert "T1(append x a) -RT->" in example
    assert "T2(read x nothing (0)) -RW->" in example


def test_a_long_history_with_a_large_knot_is_judged_soon() -> None:
    """Every second transaction reads the past."""
    history = [txn(n, (10 * n, 10 * n + 5), a("x", f"{n}"), outcome=OK) for n in range(0, 2000, 2)]
    elements = tuple(str(n) for n in range(0, 2000, 2))
    history += [
        Transaction(n, (Read("x", elements[: max(0, n // 2 - 5)]),), 10 * n, 10 * n + 5) for n in range(1, 2000, 2)
    ]
    assert broken(*history, Transaction(2000, (Read("x", elements),), 40_000, 40_001))


def test_every_violation_is_named_in_the_findings() -> None:
    assert tuple(AppendCheck([]).findings.violations) == VIOLATIONS
