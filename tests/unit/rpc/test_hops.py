"""What metadata say of a call's way from node to node."""

from __future__ import annotations

import pytest

from dledger.common.errors import Code, DLedgerError, error
from dledger.rpc.hops import controls, hops_left, leader_metadata


@pytest.mark.parametrize(("told", "most", "left"), [(None, 2, 2), ("0", 2, 0), ("1", 2, 1), ("99", 1, 1)])
def test_a_caller_may_ask_for_fewer_hops_and_never_for_more(told: str | None, most: int, left: int) -> None:
    assert hops_left(told, most) == left


@pytest.mark.parametrize("told", ["", "-1", "one", "1" * 4000, "²"])
def test_what_is_no_number_of_hops_is_refused(told: str) -> None:
    with pytest.raises(DLedgerError) as refused:
        hops_left(told, 1)
    assert refused.value.code is Code.UNEXPECTED_ARGUMENT
    assert len(str(refused.value)) < 400


def test_other_metadata_say_nothing_of_the_way() -> None:
    assert controls((("x-trace", "7"), ("dledger-hops", "1"))) == {"dledger-hops": "1"}
    assert controls(None) == {}


def test_a_refusal_of_leadership_names_the_leader_in_plain_metadata() -> None:
    refusal = error(Code.NOT_LEADER, "n1 leads", leader_id="n1", leader_address="10.0.0.1:1")
    assert leader_metadata(refusal) == (("dledger-leader-id", "n1"), ("dledger-leader-address", "10.0.0.1:1"))


def test_a_refusal_without_a_leader_is_still_known_as_one_of_leadership() -> None:
    refusal = error(Code.NOT_LEADER, "none is known", leader_id="", leader_address="")
    assert leader_metadata(refusal) == (("dledger-leader-id", ""), ("dledger-leader-address", ""))


def test_what_may_not_stand_in_metadata_is_left_out() -> None:
    refusal = error(Code.NOT_LEADER, "n1 leads", leader_id="n1", leader_address="höst:1")
    assert dict(leader_metadata(refusal)) == {"dledger-leader-id": "n1", "dledger-leader-address": ""}


def test_other_refusals_name_no_leader() -> None:
    assert leader_metadata(error(Code.NOT_HERE, "ask another", leader_id="n1")) == ()
