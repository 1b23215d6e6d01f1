"""A store that is full takes what makes it smaller, and nothing that makes it larger, until somebody says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc
import pytest

from dledger.etcdpb import rpc_pb2 as rpc
from tests.unit.server.etcd.conftest import Served

PUT = rpc.PutRequest(key=b"k")
TXN = rpc.TxnRequest(failure=[rpc.RequestOp(request_put=PUT)], compare=[rpc.Compare(key=b"k", version=9)])
GROWING: dict[str, Callable[[Served], Awaitable[object]]] = {
    "put": lambda served: served.kv.Put(PUT),
    "txn": lambda served: served.kv.Txn(TXN),
    "grant": lambda served: served.lease.LeaseGrant(rpc.LeaseGrantRequest(TTL=60)),
}


@pytest.mark.parametrize("kind", GROWING)
async def test_what_would_not_fit_raises_the_alarm_and_is_refused(served: Served, kind: str) -> None:
    served.backend.quota_bytes = 1
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await GROWING[kind](served)
    assert (failure.value.code(), failure.value.details()) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "etcdserver: mvcc: database space exceeded",
    )
    alarms = (await served.maintenance.Alarm(rpc.AlarmRequest())).alarms
    assert [(each.memberID, each.alarm) for each in alarms] == [(served.backend.member_id, rpc.NOSPACE)]


async def test_a_full_store_deletes(served: Served) -> None:
    await served.kv.Put(PUT)
    served.backend.quota_bytes = 1
    assert (await served.kv.DeleteRange(rpc.DeleteRangeRequest(key=b"k"))).deleted == 1


async def test_room_again_is_not_enough_without_the_alarm_taken_back(served: Served) -> None:
    served.backend.quota_bytes = 1
    with pytest.raises(grpc.aio.AioRpcError):
        await served.kv.Put(PUT)
    served.backend.quota_bytes = -1
    with pytest.raises(grpc.aio.AioRpcError):
        await served.kv.Put(PUT)
    back = rpc.AlarmRequest(
        action=rpc.AlarmRequest.DEACTIVATE, memberID=served.backend.member_id, alarm=rpc.AlarmType.NOSPACE
    )
    await served.maintenance.Alarm(back)
    assert (await served.kv.Put(PUT)).header.revision == 2
