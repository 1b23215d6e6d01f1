"""A range in pieces is one range: of one revision, whole, and counted as one."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from dledger.etcdpb import rpc_pb2 as rpc
from tests.unit.server.etcd.conftest import Served

KEYS = 200


@pytest.fixture
async def filled(served: Served) -> Served:
    for number in range(KEYS):
        await served.kv.Put(rpc.PutRequest(key=b"%04d" % number))
    return served


async def parts_of(served: Served, **more: Any) -> list[rpc.RangeResponse]:
    call: Any = served.kv.RangeStream(rpc.RangeRequest(key=b"\0", range_end=b"\0", **more))
    return [each.range_response async for each in call]


@pytest.mark.parametrize("limit", [0, 1, 10, 11, 100, KEYS, KEYS + 1])
async def test_the_pieces_are_what_a_range_gives(filled: Served, limit: int) -> None:
    whole = await filled.kv.Range(rpc.RangeRequest(key=b"\0", range_end=b"\0", limit=limit))
    parts = await parts_of(filled, limit=limit)
    assert [pair for part in parts for pair in part.kvs] == list(whole.kvs)
    assert (parts[-1].count, parts[-1].more) == (whole.count, whole.more)


async def test_the_last_piece_alone_has_the_header(filled: Served) -> None:
    parts = await parts_of(filled)
    assert len(parts) > 1
    assert [part.HasField("header") for part in parts] == [False] * (len(parts) - 1) + [True]


async def test_a_count_comes_in_one_piece(filled: Served) -> None:
    [part] = await parts_of(filled, count_only=True)
    assert part.count == KEYS


async def test_what_needs_the_whole_range_at_once_is_refused(filled: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await parts_of(filled, sort_order=rpc.RangeRequest.DESCEND)
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
