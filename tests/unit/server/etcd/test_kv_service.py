"""Reads that may be stale: they wait for nobody, but where their client knows of a later revision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.store.commands import command
from tests.unit.server.etcd.conftest import Served

KEY = b"key"
Read = Callable[[Served, int], Awaitable[bytes]]


async def by_range(served: Served, revision: int) -> bytes:
    answer = await served.kv.Range(rpc.RangeRequest(key=KEY, revision=revision, serializable=True))
    return answer.kvs[0].value


async def by_txn(served: Served, revision: int) -> bytes:
    read = rpc.RequestOp(request_range=rpc.RangeRequest(key=KEY, revision=revision, serializable=True))
    answer = await served.kv.Txn(rpc.TxnRequest(success=[read]))
    return answer.responses[0].response_range.kvs[0].value


async def by_stream(served: Served, revision: int) -> bytes:
    call: Any = served.kv.RangeStream(rpc.RangeRequest(key=KEY, revision=revision, serializable=True))
    values: list[bytes] = [pair.value async for part in call for pair in part.range_response.kvs]
    return values[0]


READS = pytest.mark.parametrize("read", [by_range, by_txn, by_stream])


@pytest.fixture
async def behind(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A node that applies the second of two puts when it asks the leader how far it must be."""
    await served.kv.Put(rpc.PutRequest(key=KEY, value=b"old"))

    async def barrier() -> None:
        await served.backend.submit(command(rpc.PutRequest(key=KEY, value=b"new")))

    monkeypatch.setattr(served.backend, "barrier", barrier)
    return served


@READS
async def test_a_node_catches_up_with_a_revision_that_the_client_was_told_elsewhere(behind: Served, read: Read) -> None:
    known = behind.backend.store.pairs.revision + 1
    assert await read(behind, known) == b"new"


@READS
@pytest.mark.parametrize("ago", [None, 0])
async def test_a_revision_that_is_there_is_read_without_the_leader(behind: Served, read: Read, ago: int | None) -> None:
    present = behind.backend.store.pairs.revision
    assert await read(behind, 0 if ago is None else present - ago) == b"old"
    assert behind.backend.store.pairs.revision == present


@READS
async def test_a_revision_that_is_nowhere_is_refused(behind: Served, read: Read) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await read(behind, behind.backend.store.pairs.revision + 2)
    assert failure.value.code() is grpc.StatusCode.OUT_OF_RANGE
