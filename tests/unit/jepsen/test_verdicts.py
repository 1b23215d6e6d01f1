"""A failure is called one only when the append surely did not happen."""

from __future__ import annotations

import pytest

from dledger.common.errors import Code, error
from jepsen.verdicts import Failed, SurelyNot, Unknown, outcome_of_rpc, outcome_of_sdk

LEAVES_DOUBT = [
    Code.NETWORK_ERROR,
    Code.WAIT_QUORUM_ACK_TIMEOUT,
    Code.TERM_CHANGED,
    Code.DISK_ERROR,
    Code.INTERNAL_ERROR,
    Code.SHUTTING_DOWN,
    Code.CORRUPT_LOG,
]


@pytest.mark.parametrize("code", LEAVES_DOUBT)
def test_what_leaves_doubt_is_unknown(code: Code) -> None:
    assert outcome_of_sdk(error(code, "…")) == Unknown(code.value)
    assert outcome_of_rpc(error(code, "…")) == Unknown(code.value)


@pytest.mark.parametrize("reason", [reason for reason in SurelyNot if reason is not SurelyNot.NEVER_SENT])
def test_a_refusal_before_anything_was_written_is_a_failure(reason: SurelyNot) -> None:
    assert outcome_of_sdk(error(reason.value, "…")) == Failed(reason)
    assert outcome_of_rpc(error(reason.value, "…")) == Failed(reason)


def test_a_plain_call_that_ran_out_of_time_is_unknown_and_the_sdk_knows_what_it_never_sent() -> None:
    assert outcome_of_rpc(error(Code.TIMEOUT, "…")) == Unknown("TIMEOUT")
    assert outcome_of_sdk(error(Code.TIMEOUT, "…")) == Failed(SurelyNot.NEVER_SENT)


def test_a_plain_call_without_a_connection_was_never_sent() -> None:
    assert outcome_of_rpc(error(Code.NETWORK_ERROR, "…", sent="no")) == Failed(SurelyNot.NEVER_SENT)
