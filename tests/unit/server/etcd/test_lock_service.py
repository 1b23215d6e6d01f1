"""Locks: who waits for whom, and what is left of one who waits no more. tests/etcd compares the answers with etcd's."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from dledger.common.errors import Code, error
from dledger.etcdpb import lock_pb2 as pb
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.store.commands import command
from tests.unit.server.etcd.conftest import WITHIN_S, Served

LEASES = (1, 2, 3)


@pytest.fixture
async def leased(served: Served) -> Served:
    for each in LEASES:
        await served.lease.LeaseGrant(rpc.LeaseGrantRequest(ID=each, TTL=100))
    return served


async def locking(served: Served, lease: int, name: bytes = b"a") -> pb.LockResponse:
    return await served.lock.Lock(pb.LockRequest(name=name, lease=lease), timeout=WITHIN_S)


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call
    return failure.value.code(), str(failure.value.details())


async def queue(served: Served, *leases: int) -> list[asyncio.Task[pb.LockResponse]]:
    """They ask one after the other; the first one has the lock."""
    calls = []
    for count, lease in enumerate(leases or LEASES, 1):
        calls.append(asyncio.ensure_future(locking(served, lease)))
        await served.keys(b"a/", count)
    await calls[0]
    return calls


async def test_they_have_the_lock_in_the_order_in_which_they_asked(leased: Served) -> None:
    first, second, third = await queue(leased)
    await leased.lock.Unlock(pb.UnlockRequest(key=(await first).key))
    assert (await second).key == b"a/2"
    assert not third.done()
    await leased.lock.Unlock(pb.UnlockRequest(key=b"a/2"))
    assert (await third).key == b"a/3"


async def test_the_end_of_a_lease_gives_the_lock_to_the_next(leased: Served) -> None:
    _, second, _ = await queue(leased)
    await leased.lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=1))
    assert (await second).key == b"a/2"


async def test_one_who_goes_away_leaves_the_queue(leased: Served) -> None:
    first, second, third = await queue(leased)
    second.cancel()
    assert await leased.keys(b"a/", 2) == [b"a/1", b"a/3"]
    assert not third.done()
    await leased.lock.Unlock(pb.UnlockRequest(key=(await first).key))
    assert (await third).key == b"a/3"


async def test_one_who_loses_its_lease_while_it_waits_is_told_at_once(leased: Served) -> None:
    _, second, third = await queue(leased)
    await leased.lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=2))
    assert await refusal(second) == (grpc.StatusCode.UNKNOWN, "mutex: session is expired")
    assert not third.done()


async def test_on_a_node_that_is_cut_off_nobody_waits_and_the_place_is_kept(leased: Served) -> None:
    first, second, _ = await queue(leased)
    leased.backend.lost.set()
    assert await refusal(second) == (grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")
    leased.backend.lost.clear()
    again = asyncio.ensure_future(locking(leased, 2))
    await leased.lock.Unlock(pb.UnlockRequest(key=(await first).key))
    assert (await again).key == b"a/2"


async def test_one_who_cannot_be_sure_of_the_lock_is_refused_and_leaves(
    leased: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await queue(leased, 1, 2)

    async def barrier() -> None:
        raise error(Code.NOT_LEADER, "nobody leads")

    monkeypatch.setattr(leased.backend, "barrier", barrier)
    await leased.lock.Unlock(pb.UnlockRequest(key=(await first).key))
    assert await refusal(second) == (grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")
    monkeypatch.undo()
    assert await leased.keys(b"a/", 0) == []


async def test_a_call_without_a_lease_is_given_one(leased: Served) -> None:
    key = (await locking(leased, 0)).key
    lease = int(key.removeprefix(b"a/"), 16)
    assert lease in {each.ID for each in (await leased.lease.LeaseLeases(rpc.LeaseLeasesRequest())).leases}


async def test_nobody_waits_for_the_keys_of_the_system(leased: Served) -> None:
    await leased.backend.submit(command(rpc.PutRequest(key=b"/dledger/groups/x"), is_system=True))
    assert (await locking(leased, 1, b"")).key == b"/1"
    waiting = asyncio.ensure_future(locking(leased, 2, b""))
    await leased.lock.Unlock(pb.UnlockRequest(key=b"/1"))
    assert (await waiting).key == b"/2"


async def test_no_lock_is_made_of_the_keys_of_the_system(leased: Served) -> None:
    assert await refusal(locking(leased, 1, b"/dledger")) == (
        grpc.StatusCode.UNKNOWN,
        "etcdserver: permission denied",
    )
