"""Elections: who leads, and what observers see. tests/etcd compares the answers with etcd's."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from dledger.etcdpb import election_pb2 as pb
from dledger.etcdpb import rpc_pb2 as rpc
from tests.unit.server.clusters import until_so
from tests.unit.server.etcd.conftest import WITHIN_S, Served

LEASES = (1, 2)


@pytest.fixture
async def leased(served: Served) -> Served:
    for each in LEASES:
        await served.lease.LeaseGrant(rpc.LeaseGrantRequest(ID=each, TTL=100))
    return served


async def campaigning(served: Served, lease: int, value: bytes) -> pb.CampaignResponse:
    request = pb.CampaignRequest(name=b"e", lease=lease, value=value)
    return await served.election.Campaign(request, timeout=WITHIN_S)


async def seen(observed: Any) -> bytes:
    response: pb.LeaderResponse = await asyncio.wait_for(observed.read(), WITHIN_S)
    assert response.header.revision >= response.kv.mod_revision
    return response.kv.value


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call
    return failure.value.code(), str(failure.value.details())


async def is_watched(served: Served) -> bool:
    return served.backend.watches.count() > 0


def observing(served: Served) -> Any:
    return served.election.Observe(pb.LeaderRequest(name=b"e"))


async def test_an_observer_sees_the_leader_what_it_proclaims_and_the_next_one(leased: Served) -> None:
    first = (await campaigning(leased, 1, b"one")).leader
    observed = observing(leased)
    assert await seen(observed) == b"one"
    await leased.election.Proclaim(pb.ProclaimRequest(leader=first, value=b"once more"))
    assert await seen(observed) == b"once more"
    second = asyncio.ensure_future(campaigning(leased, 2, b"two"))
    await leased.keys(b"e/", 2)
    await leased.election.Resign(pb.ResignRequest(leader=first))
    await second
    assert await seen(observed) == b"two"
    observed.cancel()


async def test_an_observer_waits_for_the_first_leader(leased: Served) -> None:
    observed = observing(leased)
    waiting = asyncio.ensure_future(seen(observed))
    await until_so(lambda: is_watched(leased))
    await campaigning(leased, 1, b"one")
    assert await waiting == b"one"
    observed.cancel()


async def test_an_observer_goes_on_where_history_was_compacted(leased: Served) -> None:
    await campaigning(leased, 1, b"one")
    observed = observing(leased)
    assert await seen(observed) == b"one"
    await leased.lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=1))
    await leased.kv.Compact(rpc.CompactionRequest(revision=leased.backend.store.pairs.revision))
    await campaigning(leased, 2, b"two")
    assert await seen(observed) == b"two"
    observed.cancel()


async def test_an_observer_of_a_node_that_is_cut_off_is_told_so(leased: Served) -> None:
    observed = observing(leased)
    leased.backend.lost.set()
    assert await refusal(observed.read()) == (grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")


async def test_a_candidate_that_loses_its_lease_while_it_waits_does_not_lead(leased: Served) -> None:
    await campaigning(leased, 1, b"one")
    second = asyncio.ensure_future(campaigning(leased, 2, b"two"))
    await leased.keys(b"e/", 2)
    await leased.lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=2))
    assert await refusal(second) == (grpc.StatusCode.UNKNOWN, "election: not leader")


async def test_a_leader_without_a_lease_is_given_one_when_it_proclaims(leased: Served) -> None:
    leader = (await campaigning(leased, 1, b"one")).leader
    leader.lease = 0
    await leased.election.Proclaim(pb.ProclaimRequest(leader=leader, value=b"other"))
    found = (await leased.election.Leader(pb.LeaderRequest(name=b"e"))).kv
    assert found.value == b"other"
    assert found.lease not in (0, 1)
