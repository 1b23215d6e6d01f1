"""The demo's verdict is right about logs that are wrong."""

from __future__ import annotations

from array import array

import pytest

from dledger.cli.demo_check import Fingerprint, Verdict, compare, dense, worst

LINES = [b"a", b"b", b"", b"", b"c"]


def verdict(acked: list[int], records: list[bytes]) -> Verdict:
    return compare([LINES], array("q", acked), [records])


@pytest.mark.parametrize(
    ("acked", "records", "expected"),
    [
        ([0, 1, 2, 3, 4], LINES, Verdict()),
        ([0, 1, 2, 3, 4], LINES[:4], Verdict(lost=1)),
        ([0, 1, 2, 3, 4], [b"a", b"X", b"", b"", b"c"], Verdict(lost=1)),
        ([0, 2, 3, 4, 5], [b"a", b"a", b"b", b"", b"", b"c"], Verdict(duplicated=1)),
        ([1, 0, 2, 3, 4], [b"b", b"a", b"", b"", b"c"], Verdict(out_of_order=1)),
        ([0, 1, 2, 2, 3], [b"a", b"b", b"", b"c"], Verdict(out_of_order=1)),
    ],
)
def test_what_is_wrong_is_named(acked: list[int], records: list[bytes], expected: Verdict) -> None:
    assert verdict(acked, records) == expected


def test_only_nothing_wrong_is_clean() -> None:
    assert Verdict().clean
    assert not any(Verdict(*(int(i == n) for i in range(3))).clean for n in range(3))


def test_the_worst_node_counts() -> None:
    assert worst([Verdict(1, 0, 3), Verdict(0, 2, 1)]) == Verdict(1, 2, 3)


def test_a_fingerprint_sees_where_records_end() -> None:
    one, other, batched = Fingerprint(), Fingerprint(), Fingerprint()
    one.add([b"ab", b"c"])
    other.add([b"a", b"bc"])
    batched.add([b"ab"])
    batched.add([b"c"])
    assert not one.same_as(other)
    assert one.same_as(batched)


def test_acks_are_dense_from_zero_on() -> None:
    assert dense(array("q", [0, 1, 2]))
    assert not dense(array("q", [1, 2, 3]))
    assert not dense(array("q", [0, 2, 1]))
