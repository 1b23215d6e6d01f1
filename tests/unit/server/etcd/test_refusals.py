"""What a client of etcd's is told of the log's troubles: what it knows how to answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest

from dledger.common.errors import Code, error
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.etcd.refusals import streaming
from tests.unit.server.etcd.conftest import Served


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        (Code.NOT_LEADER, grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader"),
        (Code.WAIT_QUORUM_ACK_TIMEOUT, grpc.StatusCode.UNAVAILABLE, "etcdserver: request timed out"),
        (Code.TERM_CHANGED, grpc.StatusCode.UNAVAILABLE, "etcdserver: leader changed"),
        (Code.SHUTTING_DOWN, grpc.StatusCode.UNAVAILABLE, "etcdserver: server stopped"),
        (Code.LEADER_PENDING_FULL, grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
        (Code.DISK_FULL, grpc.StatusCode.RESOURCE_EXHAUSTED, "dledger: it is full"),
    ],
)
async def test_a_refusal_of_the_log_has_etcds_words(
    served: Served, monkeypatch: pytest.MonkeyPatch, code: Code, status: grpc.StatusCode, text: str
) -> None:
    async def refuse(_command: bytes) -> Any:
        raise error(code, "it is full")

    monkeypatch.setattr(served.backend, "submit", refuse)
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await served.kv.Put(rpc.PutRequest(key=b"k"))
    assert (failure.value.code(), failure.value.details()) == (status, text)


async def test_a_wrong_request_is_refused_before_it_is_submitted(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await served.kv.Put(rpc.PutRequest())
    assert failure.value.details() == "etcdserver: key is not provided"
    assert served.backend.applied_index == 0


async def test_only_the_leader_hands_its_leadership_over(served: Served) -> None:
    served.backend.leader_id = 0xB2
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await served.maintenance.MoveLeader(rpc.MoveLeaderRequest(targetID=0xB2))
    assert failure.value.details() == "etcdserver: not leader"


async def test_a_status_without_a_leader_says_so(served: Served) -> None:
    served.backend.leader_id = 0
    assert list((await served.maintenance.Status(rpc.StatusRequest())).errors) == ["etcdserver: no leader"]


async def test_what_a_stream_holds_is_let_go_with_its_call(served: Served) -> None:
    let_go: list[str] = []

    class Held:
        backend = served.backend

        @streaming
        async def watch(self, request: str, _context: Any) -> AsyncGenerator[str, None]:
            try:
                yield request
            finally:
                let_go.append(request)

    answers = Held().watch("a view", None)  # type: ignore[arg-type]  # nothing is refused
    assert await anext(answers) == "a view"
    await answers.aclose()
    assert let_go == ["a view"]
