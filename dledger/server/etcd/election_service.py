"""v3electionpb.Election: elections for clients that leave the waiting to the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from dledger.etcdpb import election_pb2 as pb
from dledger.etcdpb import election_pb2_grpc
from dledger.etcdpb import kv_pb2 as kv
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.carry_out import carry_out
from dledger.server.etcd.headers import fill_header, new_header
from dledger.server.etcd.recipes import NO_LEADER_KEY, NOBODY_ELECTED, NOT_ELECTED, recipe
from dledger.server.etcd.refusals import Context, Refusal, streaming, unary
from dledger.server.etcd.turns import (
    PlaceLost,
    created_at,
    first_below,
    give_up,
    own_lease,
    prefix_of,
    take_place,
    wait_for_turn,
    waiting_below,
)
from dledger.server.etcd.watch_here import watch_here
from dledger.server.etcd.while_led import items_while_led
from dledger.store.quota import cost_of_txn


class ElectionService(election_pb2_grpc.ElectionServicer):
    def __init__(self, backend: StoreBackend) -> None:
        self.backend = backend

    @unary
    @recipe(NOT_ELECTED)
    async def Campaign(self, request: pb.CampaignRequest) -> pb.CampaignResponse:  # noqa: N802
        place = await take_place(self.backend, request.name, request.lease, request.value)
        leader = pb.LeaderKey(name=request.name, key=place.key, rev=place.revision, lease=place.lease)
        if place.found not in (None, request.value):
            await self._proclaim(leader, request.value)
        await wait_for_turn(self.backend, place)
        return pb.CampaignResponse(header=place.header, leader=leader)

    @unary
    @recipe(NOT_ELECTED)
    async def Proclaim(self, request: pb.ProclaimRequest) -> pb.ProclaimResponse:  # noqa: N802
        leader = _leader_of(request)
        if not leader.lease:
            leader.lease = await own_lease(self.backend)
        return pb.ProclaimResponse(header=await self._proclaim(leader, request.value))

    async def _proclaim(self, leader: pb.LeaderKey, value: bytes) -> rpc.ResponseHeader:
        put = rpc.RequestOp(request_put=rpc.PutRequest(key=leader.key, value=value, lease=leader.lease))
        request = rpc.TxnRequest(compare=[created_at(leader.key, leader.rev)], success=[put])
        answer: rpc.TxnResponse = await carry_out(self.backend, request, cost_of_txn(request))
        if not answer.succeeded:
            raise PlaceLost
        return answer.header

    @unary
    @recipe(NOT_ELECTED)
    async def Leader(self, request: pb.LeaderRequest) -> pb.LeaderResponse:  # noqa: N802
        await self.backend.barrier()
        found = first_below(self.backend.store, prefix_of(request.name))
        if found is None:
            raise Refusal(NOBODY_ELECTED)
        return pb.LeaderResponse(header=new_header(self.backend), kv=found)

    @streaming
    async def Observe(  # noqa: N802
        self, request: pb.LeaderRequest, _context: Context
    ) -> AsyncGenerator[pb.LeaderResponse, None]:
        leaders = items_while_led(self.backend, _leaders(self.backend, prefix_of(request.name)))
        async with aclosing(leaders):
            async for leader in leaders:
                yield leader

    @unary
    @recipe(NOT_ELECTED)
    async def Resign(self, request: pb.ResignRequest) -> pb.ResignResponse:  # noqa: N802
        leader = _leader_of(request)
        answer = await give_up(self.backend, leader.key, leader.rev)
        return pb.ResignResponse(header=answer.header)


def _leader_of(request: pb.ProclaimRequest | pb.ResignRequest) -> pb.LeaderKey:
    """Raises Refusal."""
    if not request.HasField("leader"):
        raise Refusal(NO_LEADER_KEY)
    return request.leader


async def _leaders(backend: StoreBackend, prefix: bytes) -> AsyncGenerator[pb.LeaderResponse, None]:
    """The present leader's key and its changes, until it is gone; then the next one's. A leader may be missed that came
    and went at once."""
    while True:
        await backend.barrier()
        revision = backend.store.pairs.revision
        leader = first_below(backend.store, prefix)
        if leader is None:
            leader = await _first_put(backend, prefix, revision)
            if leader is None:
                continue
            revision = leader.mod_revision
        yield pb.LeaderResponse(header=new_header(backend, revision), kv=leader)
        changes = _changes(backend, leader.key, revision)
        async with aclosing(changes):
            async for each in changes:
                yield each


async def _first_put(backend: StoreBackend, prefix: bytes, revision: int) -> kv.KeyValue | None:
    """After the revision; None: what happened since is not known any more."""
    no_deletes = [rpc.WatchCreateRequest.NODELETE]
    requests = [
        rpc.WatchCreateRequest(key=key, range_end=end, start_revision=revision + 1, filters=no_deletes)
        for key, end in waiting_below(prefix)
    ]
    async with aclosing(watch_here(backend, requests)) as responses:
        response = await anext(responses)
    return response.events[0].kv if response.events else None


async def _changes(backend: StoreBackend, key: bytes, revision: int) -> AsyncGenerator[pb.LeaderResponse, None]:
    """Of the key after the revision, until it is deleted or its changes are not known any more."""
    request = rpc.WatchCreateRequest(key=key, start_revision=revision + 1)
    async with aclosing(watch_here(backend, [request])) as responses:
        async for response in responses:
            fill_header(backend, response)
            for event in response.events:
                if event.type == kv.Event.DELETE:
                    return
                yield pb.LeaderResponse(header=response.header, kv=event.kv)
            if response.canceled:
                return
