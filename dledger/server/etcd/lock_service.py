"""v3lockpb.Lock: locks for clients that leave the waiting to the server."""

from __future__ import annotations

from dledger.etcdpb import lock_pb2 as pb
from dledger.etcdpb import lock_pb2_grpc
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.carry_out import carry_out
from dledger.server.etcd.headers import new_header
from dledger.server.etcd.recipes import SESSION_EXPIRED, recipe
from dledger.server.etcd.refusals import unary
from dledger.server.etcd.turns import take_place, wait_for_turn


class LockService(lock_pb2_grpc.LockServicer):
    def __init__(self, backend: StoreBackend) -> None:
        self.backend = backend

    @unary
    @recipe(SESSION_EXPIRED)
    async def Lock(self, request: pb.LockRequest) -> pb.LockResponse:  # noqa: N802
        place = await take_place(self.backend, request.name, request.lease)
        await wait_for_turn(self.backend, place)
        return pb.LockResponse(header=new_header(self.backend), key=place.key)

    @unary
    @recipe(SESSION_EXPIRED)
    async def Unlock(self, request: pb.UnlockRequest) -> pb.UnlockResponse:  # noqa: N802
        answer = await carry_out(self.backend, rpc.DeleteRangeRequest(key=request.key))
        return pb.UnlockResponse(header=answer.header)
