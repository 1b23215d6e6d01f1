from __future__ import annotations

import pytest

from dledger.common.errors import CODES, Code, error
from dledger.rpc.client.failures import from_rpc
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.client.verdict import Verdict, judge, leaves_doubt
from dledger.rpc.status import StatusCode


@pytest.mark.parametrize("code", list(CODES))
def test_a_doubtful_batch_is_never_sent_again_under_another_producer(code: Code) -> None:
    """It may be in the log already: under another producer's sequence it would not be recognised."""
    assert judge(code, doubtful=True) in {Verdict.RESEND, Verdict.ABANDON}


@pytest.mark.parametrize("code", [code for code, row in CODES.items() if row.exit_code in {3, 4}])
def test_what_passes_by_itself_is_resent(code: Code) -> None:
    assert judge(code, doubtful=False) is Verdict.RESEND
    assert judge(code, doubtful=True) is Verdict.RESEND


@pytest.mark.parametrize("code", [Code.WAIT_QUORUM_ACK_TIMEOUT, Code.TERM_CHANGED, Code.NETWORK_ERROR])
def test_a_stream_that_ends_without_a_word_leaves_doubt(code: Code) -> None:
    assert leaves_doubt(error(code, "no"))


@pytest.mark.parametrize("status", [status for status in StatusCode if status is not StatusCode.OK])
def test_what_grpc_itself_ends_a_stream_with_leaves_doubt(status: StatusCode) -> None:
    """It overtakes the answers to what the leader has appended."""
    for details in ("", "SERVER: Received message larger than max (9 vs. 8)"):
        assert leaves_doubt(from_rpc(RpcFailure(status, details), "h:1"))


@pytest.mark.parametrize("code", [Code.NOT_LEADER, Code.LEADER_PENDING_FULL, Code.OUT_OF_ORDER, Code.DISK_FULL])
def test_a_refusal_leaves_none(code: Code) -> None:
    assert not leaves_doubt(error(code, "no"))


def test_a_full_disk_is_told_to_the_caller_unless_the_batch_may_be_in_the_log() -> None:
    assert judge(Code.DISK_FULL, doubtful=False) is Verdict.REFUSE_HEAD
    assert judge(Code.DISK_FULL, doubtful=True) is Verdict.RESEND
