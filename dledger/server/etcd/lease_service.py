"""etcdserverpb.Lease."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.etcdpb import rpc_pb2_grpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.headers import fill_header, new_header
from dledger.server.etcd.refusals import Context, streaming, unary
from dledger.server.etcd.room import ensure_room
from dledger.store.commands import command
from dledger.store.quota import LEASE_COST_BYTES
from dledger.store.refusals import StoreCode, StoreRefused

EXPIRED_TTL_S = -1
"""What is said of a lease that does not exist."""


class LeaseService(rpc_pb2_grpc.LeaseServicer):
    def __init__(self, backend: StoreBackend) -> None:
        self.backend = backend

    @unary
    async def LeaseGrant(self, request: rpc.LeaseGrantRequest) -> rpc.LeaseGrantResponse:  # noqa: N802
        await ensure_room(self.backend, LEASE_COST_BYTES)
        answer: rpc.LeaseGrantResponse = await self.backend.submit(command(request))
        fill_header(self.backend, answer)
        return answer

    @unary
    async def LeaseRevoke(self, request: rpc.LeaseRevokeRequest) -> rpc.LeaseRevokeResponse:  # noqa: N802
        answer: rpc.LeaseRevokeResponse = await self.backend.submit(command(request))
        fill_header(self.backend, answer)
        return answer

    @streaming
    async def LeaseKeepAlive(  # noqa: N802
        self, requests: AsyncIterator[rpc.LeaseKeepAliveRequest], _context: Context
    ) -> AsyncGenerator[rpc.LeaseKeepAliveResponse, None]:
        async for request in requests:
            # From before the lease is renewed: a client must not read "alive" at a revision at which it is gone.
            answer = rpc.LeaseKeepAliveResponse(ID=request.ID, header=new_header(self.backend))
            try:
                answer.TTL = await self.backend.keep_alive(request.ID)
            except StoreRefused as refused:
                if refused.code is not StoreCode.LEASE_NOT_FOUND:
                    raise
            yield answer

    @unary
    async def LeaseTimeToLive(self, request: rpc.LeaseTimeToLiveRequest) -> rpc.LeaseTimeToLiveResponse:  # noqa: N802
        answer = rpc.LeaseTimeToLiveResponse(ID=request.ID, TTL=EXPIRED_TTL_S)
        try:
            times = await self.backend.lease_times(request.ID)
        except StoreRefused as refused:
            if refused.code is not StoreCode.LEASE_NOT_FOUND:
                raise
        else:
            answer.TTL, answer.grantedTTL = times.remaining_s, times.granted_s
            lease = self.backend.store.leases.get(request.ID)
            if request.keys and lease is not None:
                answer.keys.extend(sorted(lease.keys))
        answer.header.CopyFrom(new_header(self.backend))
        return answer

    @unary
    async def LeaseLeases(self, request: rpc.LeaseLeasesRequest) -> rpc.LeaseLeasesResponse:  # noqa: N802
        await self.backend.barrier()
        leases = [rpc.LeaseStatus(ID=each.id) for each in self.backend.store.leases]
        return rpc.LeaseLeasesResponse(header=new_header(self.backend), leases=leases)
