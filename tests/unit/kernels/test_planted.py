"""Each check finds what it is for, and nothing in a history that is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.kernels.checks import check_history, verdict
from tests.unit.kernels.histories import (
    Row,
    append,
    batch_of,
    failed,
    final,
    local_read,
    read,
    unknown,
    value,
)

A0, A1, B0, B1 = value(1, 0), value(1, 1), value(2, 0), value(2, 1)

RIGHT: list[Row] = [
    append(1, 0, (0, 10), index=0),
    append(2, 0, (5, 12), index=1),
    append(1, 1, (11, 20), index=2),
    unknown(2, 1, (13, 30)),
    failed(3, 0, (14, 31)),
    *read((21, 25), [A0, B0, A1]),
    *local_read((22, 26), [A0, B0]),
    *final([A0, B0, A1, B1]),
]


def with_terms(rows: list[Row], *terms: int) -> list[Row]:
    return [replace(row, term=term) for row, term in zip(rows, terms, strict=True)]


def broken(history: list[Row]) -> dict[str, int]:
    """The violations that are found, by name."""
    findings = check_history(lambda: [batch_of(history)])
    return {name: n for found in findings.values() for name, n in found.violations.items() if n}


def test_a_right_history_is_valid_and_counted() -> None:
    told = verdict(check_history(lambda: [batch_of(RIGHT)]))
    assert not broken(RIGHT)
    assert told["valid"]
    assert (told["attempts"], told["acknowledged"], told["failed"], told["unknown"]) == (5, 3, 1, 1)
    assert (told["recovered"], told["read"], told["final_reads"]) == (1, 4, 1)


@pytest.mark.parametrize(
    ("history", "violations"),
    [
        pytest.param(
            [append(1, 0, (0, 10), index=0), *final([])], {"lost": 1, "stale": 1}, id="an acknowledged value is lost"
        ),
        pytest.param(
            [append(1, 0, (0, 10), index=0, count=1000), *final([value(1, n) for n in range(1000) if n != 500])],
            {"lost": 1, "conflicts": 499, "stale": 1},
            id="one out of a batch is lost, and what is behind it moved",
        ),
        pytest.param([*final([A0])], {"unexpected": 1}, id="a value that nobody appended"),
        pytest.param([failed(1, 0, (0, 10)), *final([A0])], {"unexpected": 1}, id="a value that failed"),
        pytest.param([failed(1, 0, (0, 10)), *read((20, 25), [A0])], {"unexpected": 1}, id="failed, and read"),
        pytest.param(
            [append(1, 0, (0, 10), index=0), *final([A0, A0])],
            {"duplicated": 1},
            id="a value twice",
        ),
        pytest.param(
            [unknown(1, 0, (0, 10)), *local_read((20, 25), [A0]), *final([])],
            {"vanished": 1, "stale": 1},
            id="an uncommitted value was read",
        ),
        pytest.param(
            [unknown(1, 0, (0, 10)), append(2, 0, (0, 9), index=0), *local_read((20, 25), [A0]), *final([B0, A0])],
            {"conflicts": 1, "duplicated": 1},
            id="two values at one index",
        ),
        pytest.param(
            [append(1, 0, (0, 10), index=1), append(2, 0, (0, 10), index=0), *final([A0, B0])],
            {"conflicts": 2},
            id="acknowledged at other places than they are found",
        ),
        pytest.param(
            [append(1, 0, (0, 10), index=1), append(2, 0, (11, 20), index=0), *final([B0, A0])],
            {"reordered": 1},
            id="appended after an ack, and before it in the log",
        ),
        pytest.param(
            [unknown(2, 0, (11, 20)), append(1, 0, (0, 10), index=1), *final([B0, A0])],
            {"reordered": 1},
            id="the same with an append of unknown outcome",
        ),
        pytest.param(
            [append(1, 0, (0, 10), index=0), *read((11, 20), []), *final([A0])], {"stale": 1}, id="a read misses an ack"
        ),
        pytest.param(
            [unknown(1, 0, (0, 10)), *read((2, 3), [A0]), *read((4, 5), [], call=1), *final([A0])],
            {"stale": 1},
            id="a read sees less than one before it",
        ),
        pytest.param(
            [append(1, 0, (10, 20), index=0), *read((1, 9), [A0]), *final([A0])],
            {"premature": 1, "reordered": 1},
            id="a value is read before it was appended",
        ),
        pytest.param(
            [append(1, 1, (0, 10), index=0), append(1, 0, (1, 9), index=1), *final([A1, A0])],
            {"out_of_order": 1},
            id="a producer's values change places",
        ),
        pytest.param(
            [append(1, 0, (0, 10), index=0, count=2), *[row for row in final([A0, A1]) if row.first_index == 0]],
            {"lost": 1, "incomplete": 1},
            id="the last read has a hole",
        ),
        pytest.param(
            [append(1, 0, (0, 9), index=0), *final([A0]), *final([A0])],
            {"overfull": 1},
            id="the last read shows an index twice",
        ),
        pytest.param(
            [append(1, 0, (0, 10), index=0), *with_terms(final([A0]), 2)],
            {"two_terms": 1, "falling_terms": 1},
            id="an acknowledged record is found in another term",
        ),
        pytest.param(
            [append(1, 0, (0, 10), index=0), append(1, 1, (11, 20), index=1), *with_terms(final([A0, A1]), 2, 1)],
            {"two_terms": 1, "falling_terms": 1},
            id="a term behind a higher one",
        ),
    ],
)
def test_what_is_planted_is_found(history: list[Row], violations: dict[str, int]) -> None:
    assert broken(history) == violations


def test_a_local_read_may_be_behind() -> None:
    assert not broken([append(1, 0, (0, 10), index=0), *local_read((11, 20), []), *final([A0])])


def test_every_copy_that_was_read_at_the_end_must_hold_what_was_acknowledged() -> None:
    history = [append(1, 0, (0, 10), index=0), *final([A0]), *final([], process=1001)]
    assert broken(history) == {"lost": 1, "vanished": 1, "stale": 1}


@pytest.mark.parametrize("missing", ["acknowledged", "final"])
def test_a_history_that_proves_nothing_is_not_valid(missing: str) -> None:
    history = [unknown(1, 0, (0, 10)), *final([A0])] if missing == "acknowledged" else [append(1, 0, (0, 1), index=0)]
    assert not broken(history)
    assert not verdict(check_history(lambda: [batch_of(history)]))["valid"]
