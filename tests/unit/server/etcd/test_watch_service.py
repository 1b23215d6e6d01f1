"""What a stream of watches does beside telling of events: it ends without a leader, and says how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from dledger.etcdpb import rpc_pb2 as rpc
from tests.unit.server.etcd.conftest import Served


def created(**request: Any) -> rpc.WatchRequest:
    return rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=b"\0", range_end=b"\0", **request))


async def told(call: Any) -> rpc.WatchResponse:
    response: rpc.WatchResponse = await asyncio.wait_for(call.read(), 5)
    return response


async def begun(served: Served, metadata: Any = None, **request: Any) -> Any:
    call: Any = served.watch.Watch(metadata=metadata)
    await call.write(created(**request))
    assert (await told(call)).created
    return call


async def test_a_stream_that_asks_for_a_leader_ends_when_there_is_none_for_long(served: Served) -> None:
    call = await begun(served, metadata=(("hasleader", "true"),))
    served.backend.lost.set()
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await told(call)
    assert (failure.value.code(), failure.value.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "etcdserver: no leader",
    )


async def test_a_stream_that_does_not_ask_for_a_leader_goes_on(served: Served) -> None:
    call = await begun(served)
    served.backend.lost.set()
    await served.kv.Put(rpc.PutRequest(key=b"k"))
    assert (await told(call)).events[0].kv.key == b"k"


async def test_a_stream_that_asks_for_a_leader_is_refused_where_none_is_known(served: Served) -> None:
    served.backend.leader_id = 0
    call: Any = served.watch.Watch(metadata=(("hasleader", "true"),))
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await told(call)
    assert failure.value.details() == "etcdserver: no leader"


async def test_a_request_that_asks_for_a_leader_is_refused_where_none_is_known(served: Served) -> None:
    served.backend.leader_id = 0
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await served.kv.Range(rpc.RangeRequest(key=b"k"), metadata=(("hasleader", "true"),))
    assert failure.value.details() == "etcdserver: no leader"


async def test_a_quiet_watch_that_asked_for_it_is_told_how_far_it_is(served: Served) -> None:
    call = await begun(served, progress_notify=True)
    response = await told(call)
    assert (response.watch_id, list(response.events), response.header.revision) == (0, [], 1)


async def test_a_client_that_has_no_more_requests_keeps_its_watches(served: Served) -> None:
    async def one() -> AsyncIterator[rpc.WatchRequest]:
        yield created()

    call: Any = served.watch.Watch(one())
    responses = aiter(call)
    assert (await anext(responses)).created
    await served.kv.Put(rpc.PutRequest(key=b"k"))
    assert (await anext(responses)).events[0].kv.key == b"k"


async def test_a_stream_that_its_client_leaves_has_no_watches_any_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, is_gone = served.backend.watches, asyncio.Event()
    monkeypatch.setattr(hub, "forget", lambda _stream: is_gone.set())
    call = await begun(served)
    call.cancel()
    await asyncio.wait_for(is_gone.wait(), 5)
    assert hub.count() == 0


@pytest.mark.parametrize("fragment", [False, True])
async def test_a_revision_is_split_only_for_whoever_takes_fragments(served: Served, fragment: bool) -> None:
    """Two puts of one transaction, each with what was there before: above what a client takes at least."""
    for key in (b"a", b"b"):
        await served.kv.Put(rpc.PutRequest(key=key, value=bytes(700_000)))
    call = await begun(served, fragment=fragment, prev_kv=True)
    puts = [rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=bytes(700_000))) for key in (b"a", b"b")]
    await served.kv.Txn(rpc.TxnRequest(success=puts))
    responses = [await told(call)]
    while responses[-1].fragment:
        responses.append(await told(call))
    assert [[event.kv.key for event in each.events] for each in responses] == (
        [[b"a"], [b"b"]] if fragment else [[b"a", b"b"]]
    )
