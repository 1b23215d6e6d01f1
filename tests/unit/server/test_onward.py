"""What a caller is told of a call that was sent on."""

from __future__ import annotations

import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from dledger.common.errors import Code, error
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.client.verdict import leaves_doubt
from dledger.rpc.status import StatusCode
from dledger.server.onward import Address, in_order, not_sent, verdict

LEADER = "10.0.0.1:1"


def said(code: Code, **metadata: str) -> RpcFailure:
    """A typed refusal, as a node sends it."""
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=code.value, domain="dledger", metadata=metadata))
    status = status_pb2.Status(code=9, message="as it said", details=[detail])
    return RpcFailure(
        StatusCode.FAILED_PRECONDITION, "as it said", (("grpc-status-details-bin", status.SerializeToString()),)
    )


def broken(status: StatusCode = StatusCode.UNAVAILABLE, *, was_sent: bool = True) -> RpcFailure:
    return RpcFailure(status, "the connection was lost", was_sent=was_sent, is_local=True)


@pytest.mark.parametrize("code", [Code.OUT_OF_ORDER, Code.TERM_CHANGED, Code.SHUTTING_DOWN, Code.WRONG_EXPECTED_INDEX])
def test_what_the_other_node_said_is_handed_back_as_it_is(code: Code) -> None:
    told = verdict(said(code, next_index="7"), "Append", LEADER)
    assert told is not None
    assert (told.code, str(told), told.metadata["next_index"]) == (code, "as it said", "7")


@pytest.mark.parametrize("method", ["Append", "AppendStream", "InitProducer"])
@pytest.mark.parametrize("status", [StatusCode.UNAVAILABLE, StatusCode.CANCELLED, StatusCode.INTERNAL])
def test_a_change_without_an_answer_has_an_unknown_outcome(method: str, status: StatusCode) -> None:
    told = verdict(broken(status), method, LEADER)
    assert told is not None
    assert told.code is Code.TERM_CHANGED
    assert leaves_doubt(told)


def test_a_change_whose_time_ran_out_on_the_way_has_an_unknown_outcome() -> None:
    told = verdict(broken(StatusCode.DEADLINE_EXCEEDED), "Append", LEADER)
    assert told is not None
    assert told.code is Code.WAIT_QUORUM_ACK_TIMEOUT


@pytest.mark.parametrize("method", ["Get", "GetStream", "Read", "ReadRecords"])
def test_a_read_without_an_answer_may_be_asked_again(method: str) -> None:
    told = verdict(broken(), method, LEADER)
    assert told is not None
    assert told.code is Code.NETWORK_ERROR


@pytest.mark.parametrize(
    "failure", [broken(was_sent=False), RpcFailure(StatusCode.UNIMPLEMENTED, "there is no method /x/Append")]
)
def test_a_call_that_the_other_node_did_not_begin_is_not_in_doubt(failure: RpcFailure) -> None:
    assert verdict(failure, "Append", LEADER) is None


def test_a_leader_that_cannot_be_reached_is_still_named() -> None:
    refusal = error(Code.NOT_LEADER, "n1 leads", leader_id="n1", leader_address=LEADER)
    told = not_sent(refusal, "connection refused")
    assert (told.code, told.metadata) == (Code.NOT_LEADER, refusal.metadata)
    assert "connection refused" in str(told)


def test_addresses_that_failed_come_last_and_the_own_one_never() -> None:
    given = [Address("n1", "a:1"), Address("n1", "own:1"), Address("n1", "b:1"), Address("n2", "a:1")]
    assert in_order(given, "own:1", {"a:1"}.__contains__) == [Address("n1", "b:1"), Address("n1", "a:1")]
