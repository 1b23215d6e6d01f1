"""gRPC's errors become ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from dledger.client.stubs import LogStubs
from dledger.common.errors import CODES, Code, DeadlineExceeded, NotLeader, Unavailable, error
from dledger.rpc.client.channels import Channels
from dledger.rpc.client.failures import from_rpc, unary, was_sent
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.status import StatusCode
from dledger.v1 import log_pb2, log_pb2_grpc
from tests.unit.client.refusals import abort


class Refusing(log_pb2_grpc.LogServiceServicer):
    """Answers every Get with the code that its index numbers, and no Append at all."""

    async def Get(self, request: log_pb2.GetRequest, context: object) -> None:  # type: ignore[override]  # noqa: N802
        code = list(CODES)[request.index]
        await abort(context, error(code, f"this is {code.name}", leader_id="n2", leader_address=request.group or "h:1"))

    async def Append(self, request: object, context: object) -> None:  # type: ignore[override]  # noqa: N802
        await asyncio.Event().wait()


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = aio.server()
    log_pb2_grpc.add_LogServiceServicer_to_server(Refusing(), server)  # type: ignore[abstract]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture
async def channels() -> AsyncIterator[Channels]:
    channels = Channels()
    yield channels
    await channels.close()


async def test_every_code_arrives_as_its_exception_with_message_and_metadata(address: str, channels: Channels) -> None:
    endpoint = channels.at(address)
    for number, (code, row) in enumerate(CODES.items()):
        with pytest.raises(row.exception, match=f"this is {code.name}") as refusal:
            await unary(endpoint, endpoint.stub(LogStubs).log.Get, log_pb2.GetRequest(index=number), 5_000)
        assert refusal.value.code is code
        assert refusal.value.metadata == {"leader_id": "n2", "leader_address": "h:1"}


async def test_a_redirect_names_the_leader(address: str, channels: Channels) -> None:
    endpoint = channels.at(address)
    index = list(CODES).index(Code.NOT_LEADER)
    with pytest.raises(NotLeader) as refusal:
        await unary(endpoint, endpoint.stub(LogStubs).log.Get, log_pb2.GetRequest(index=index), 5_000)
    assert (refusal.value.leader_id, refusal.value.leader_address) == ("n2", "h:1")


async def test_a_redirect_to_the_very_address_that_was_asked_says_what_is_wrong(
    address: str, channels: Channels
) -> None:
    endpoint = channels.at(address)
    request = log_pb2.GetRequest(index=list(CODES).index(Code.NOT_LEADER), group=address)
    with pytest.raises(NotLeader, match="give each an --advertise of its own"):
        await unary(endpoint, endpoint.stub(LogStubs).log.Get, request, 5_000)


async def test_time_that_runs_out_is_a_deadline_exceeded(address: str, channels: Channels) -> None:
    endpoint = channels.at(address)
    with pytest.raises(DeadlineExceeded) as refusal:
        await unary(endpoint, endpoint.stub(LogStubs).log.Append, log_pb2.AppendRequest(records=[b"x"]), 50)
    assert was_sent(refusal.value)


async def test_a_refused_connection_names_the_endpoint(channels: Channels) -> None:
    endpoint = channels.at("127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 cannot be reached") as refusal:
        await unary(endpoint, endpoint.stub(LogStubs).log.Get, log_pb2.GetRequest(), 5_000)
    assert not was_sent(refusal.value)


async def test_a_name_that_cannot_be_looked_up_is_said_to_be_that_and_nothing_was_sent(channels: Channels) -> None:
    endpoint = channels.at("nowhere.invalid:1")
    with pytest.raises(Unavailable, match=r"its name cannot be looked up here") as refusal:
        await unary(endpoint, endpoint.stub(LogStubs).log.Get, log_pb2.GetRequest(), 5_000)
    assert not was_sent(refusal.value)


@pytest.mark.parametrize(
    ("status", "details", "code"),
    [
        (StatusCode.UNAVAILABLE, "", Code.NETWORK_ERROR),
        (StatusCode.UNIMPLEMENTED, "", Code.UNSUPPORTED),
        (StatusCode.UNIMPLEMENTED, "that is n0's peer port; clients: h:2", Code.UNSUPPORTED),
        (StatusCode.UNKNOWN, "boom", Code.INTERNAL_ERROR),
        (StatusCode.RESOURCE_EXHAUSTED, "", Code.LEADER_PENDING_FULL),
        (StatusCode.RESOURCE_EXHAUSTED, "SERVER: Received message larger than max (9 vs. 8)", Code.BATCH_TOO_LARGE),
        (StatusCode.RESOURCE_EXHAUSTED, "a message of 9 bytes; at most 8 are taken", Code.BATCH_TOO_LARGE),
    ],
)
def test_without_details_the_status_has_to_do(status: StatusCode, details: str, code: Code) -> None:
    assert from_rpc(RpcFailure(status, details), "h:1").code is code


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (
            RpcFailure(StatusCode.UNAVAILABLE, "cannot be reached: connection refused", was_sent=False, is_local=True),
            "h:1 cannot be reached: connection refused",
        ),
        (RpcFailure(StatusCode.DEADLINE_EXCEEDED, "the call's time is up"), "h:1 did not answer in time"),
        (
            RpcFailure(StatusCode.UNIMPLEMENTED, "that is n0's metrics port; clients: h:2"),
            "h:1 cannot be asked: that is n0's metrics port; clients: h:2",
        ),
        (
            RpcFailure(StatusCode.UNAVAILABLE, "the connection was lost", is_local=True),
            "the call to h:1 was given up: the connection was lost",
        ),
    ],
)
def test_the_cause_is_told_in_one_sentence(failure: RpcFailure, told: str) -> None:
    assert str(from_rpc(failure, "h:1")) == told


def newer_servers_details() -> bytes:
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(domain="dledger", reason="A_NEW_REASON"))
    details: bytes = status_pb2.Status(code=14, details=[detail]).SerializeToString()
    return details


@pytest.mark.parametrize("details", [newer_servers_details(), b"\xff\xff no protobuf"])
def test_details_that_this_version_cannot_read_fall_back_to_the_status(details: bytes) -> None:
    failure = RpcFailure(StatusCode.UNAVAILABLE, "no", (("grpc-status-details-bin", details),))
    assert from_rpc(failure, "h:1").code is Code.NETWORK_ERROR
