"""The soak's own judgement: it finds what is wrong with a log."""

from __future__ import annotations

from array import array

import pytest

from tests.soak import Findings, Journal, judge, value_of


def journal() -> Journal:
    """Six records sent: 0, 1, 3 and 4 acknowledged, 2 of unknown outcome, 5 refused."""
    return Journal(6, array("q", [0, 1, 3, 4]), array("q", [0, 1, 3, 4]), unknown={2})


@pytest.mark.parametrize(
    ("numbers", "findings"),
    [
        ([0, 1, 2, 3, 4], Findings()),
        ([0, 1, 2, 3], Findings(lost=1)),
        ([0, 1, 3, 4], Findings(lost=2)),
        ([0, 1, 2, 3, 4, 4], Findings(duplicated=1)),
        ([0, 1, 2, 4, 3], Findings(lost=2, out_of_order=1)),
        ([0, 1, 2, 3, 4, 5], Findings(foreign=1)),
        ([0, 1, 2, 3, 4, 7], Findings(foreign=1)),
    ],
)
def test_a_log_is_held_against_the_journal(numbers: list[int], findings: Findings) -> None:
    assert judge(journal(), [value_of(number) for number in numbers]) == findings


def test_other_bytes_under_a_known_number_are_lost_and_foreign() -> None:
    records = [value_of(number) for number in range(5)]
    records[1] = records[1][:-1] + b"?"
    assert judge(journal(), records) == Findings(lost=1, foreign=1)


def test_acks_that_run_backwards_are_out_of_order() -> None:
    told = Journal(2, array("q", [0, 1]), array("q", [1, 0]))
    assert judge(told, [value_of(1), value_of(0)]).out_of_order == 2
