"""StoreService as a foreign client meets it: many requests on a stream, each answered for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from dledger.common.store_errors import CODES_BY_TEXT
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.statemachine.sessions import MAX_ANSWERS
from dledger.store.refusals import StoreCode
from dledger.v1 import store_service_pb2 as pb
from dledger.v1 import store_service_pb2_grpc
from tests.support.store_nodes import StoreNodes, TroubledBackend


@pytest.fixture
async def nodes() -> AsyncIterator[StoreNodes]:
    nodes = StoreNodes()
    await nodes.start()
    yield nodes
    await nodes.stop()


@pytest.fixture
def backend(nodes: StoreNodes) -> TroubledBackend:
    return nodes.backend


@pytest.fixture
async def stub(nodes: StoreNodes) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(nodes.nodes[0].address) as channel:
        yield store_service_pb2_grpc.StoreServiceStub(channel)


async def session_of(stub: Any) -> int:
    session: int = (await stub.OpenSession(pb.OpenSessionRequest())).session
    return session


def put(session: int, request: int, key: bytes = b"a", *, acknowledged: int = 0) -> pb.SubmitRequest:
    return pb.SubmitRequest(
        session=session, request=request, acknowledged=acknowledged, put=rpc.PutRequest(key=key, value=b"1")
    )


async def answers(stub: Any, *requests: pb.SubmitRequest) -> dict[int, pb.SubmitResponse]:
    return {each.request: each async for each in stub.Submit(iter(requests))}


async def test_every_kind_of_request_has_its_answer(stub: Any) -> None:
    session = await session_of(stub)
    kinds = {
        "put": rpc.PutRequest(key=b"a"),
        "delete_range": rpc.DeleteRangeRequest(key=b"a"),
        "txn": rpc.TxnRequest(),
        "lease_grant": rpc.LeaseGrantRequest(TTL=10, ID=7),
        "lease_revoke": rpc.LeaseRevokeRequest(ID=7),
        "compact": rpc.CompactionRequest(revision=2),
    }
    requests = [
        pb.SubmitRequest(session=session, request=number, **{kind: wanted})  # type: ignore[arg-type]
        for number, (kind, wanted) in enumerate(kinds.items(), 1)
    ]
    got = await answers(stub, *requests)
    assert [got[number].WhichOneof("kind") for number in range(1, 7)] == list(kinds)
    assert got[1].put.header.revision == 2
    assert got[1].put.header.member_id


async def test_a_repeated_request_has_its_first_answer(stub: Any, backend: TroubledBackend) -> None:
    session = await session_of(stub)
    first = await answers(stub, put(session, 1))
    again = await answers(stub, put(session, 1))
    assert again[1].put.header.revision == first[1].put.header.revision == backend.store.pairs.revision == 2


async def test_a_refused_request_does_not_end_the_stream(stub: Any) -> None:
    session = await session_of(stub)
    unknown = pb.SubmitRequest(session=session, request=1, put=rpc.PutRequest(key=b"a", lease=9))
    nothing = pb.SubmitRequest(session=session, request=2)
    got = await answers(stub, unknown, nothing, put(session, 3))
    assert (got[1].refusal.reason, got[1].refusal.is_answer) == ("LEASE_NOT_FOUND", True)
    assert (got[2].refusal.reason, got[2].refusal.is_answer) == ("UNSUPPORTED", False)
    assert got[3].put.header.revision == 2


async def test_what_a_node_refuses_by_itself_is_no_answer_of_the_store(stub: Any) -> None:
    session = await session_of(stub)
    got = await answers(stub, put(session, 1, b"/dledger/x"))
    assert (got[1].refusal.reason, got[1].refusal.is_answer) == ("PERMISSION_DENIED", False)


async def test_without_space_a_put_is_refused_and_the_alarm_is_raised(stub: Any, backend: TroubledBackend) -> None:
    session = await session_of(stub)
    backend.quota_bytes = 1
    got = await answers(stub, put(session, 1))
    assert got[1].refusal.reason == "NO_SPACE"
    assert rpc.NOSPACE in backend.store.alarms


async def test_a_session_that_there_is_not_is_told_for_sure(stub: Any) -> None:
    got = await answers(stub, put(99, 1))
    assert got[1].refusal.reason == "SESSION_EXPIRED"
    assert got[1].refusal.metadata["applied"] == "no"


async def test_answers_come_as_they_are_ready(stub: Any, backend: TroubledBackend) -> None:
    released = asyncio.Event()

    async def hold_the_first(_session: int, request: int) -> None:
        if request == 1:
            await released.wait()

    backend.before = hold_the_first
    session = await session_of(stub)
    order = []
    async for each in stub.Submit(iter([put(session, number) for number in range(1, MAX_ANSWERS + 1)])):
        order.append(each.request)
        if len(order) == MAX_ANSWERS - 1:
            released.set()
    assert order[-1] == 1
    assert sorted(order) == list(range(1, MAX_ANSWERS + 1))


@pytest.mark.parametrize("wrong", [put(0, 1), put(1, 0), put(1, 3, acknowledged=3)])
async def test_a_client_that_counts_wrongly_is_told_so(stub: Any, wrong: pb.SubmitRequest) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await answers(stub, wrong)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_stream_that_goes_away_abandons_its_requests(stub: Any, backend: TroubledBackend) -> None:
    ended = asyncio.Event()

    async def hold(_session: int, _request: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    backend.before = hold
    call = stub.Submit(iter([put(await session_of(stub), 1)]))
    await backend.until_submitted(1)
    call.cancel()
    await ended.wait()


async def test_the_status_is_of_the_store(stub: Any) -> None:
    session = await session_of(stub)
    await answers(stub, put(session, 1), put(session, 2, b"b"))
    told = await stub.Status(pb.StoreServiceStatusRequest())
    assert (told.revision, told.keys, told.leases, told.watches) == (3, 2, 0, 0)
    assert told.hash


def test_every_refusal_of_the_store_has_a_code_of_ours() -> None:
    assert {each.text for each in StoreCode} == set(CODES_BY_TEXT)
