"""etcdserverpb.Cluster: who the members are. They are changed by dledger's own commands."""

from __future__ import annotations

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.etcdpb import rpc_pb2_grpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.headers import new_header
from dledger.server.etcd.refusals import EtcdError, Refusal, unary

BY_DLEDGER = EtcdError("UNIMPLEMENTED", "dledger: members are changed by `dledger members`, not by etcd's clients")


class ClusterService(rpc_pb2_grpc.ClusterServicer):
    def __init__(self, backend: StoreBackend) -> None:
        self.backend = backend

    @unary
    async def MemberList(self, request: rpc.MemberListRequest) -> rpc.MemberListResponse:  # noqa: N802
        if request.linearizable:
            await self.backend.barrier()
        header = new_header(self.backend)
        header.revision = 0  # as etcd: who the members are is no matter of the store's revision
        members = [
            rpc.Member(
                ID=each.id,
                name=each.name,
                peerURLs=each.peer_urls,
                clientURLs=each.client_urls,
                isLearner=each.is_learner,
            )
            for each in self.backend.members()
        ]
        return rpc.MemberListResponse(header=header, members=members)

    @unary
    async def MemberAdd(self, request: rpc.MemberAddRequest) -> rpc.MemberAddResponse:  # noqa: N802
        raise Refusal(BY_DLEDGER)

    @unary
    async def MemberRemove(self, request: rpc.MemberRemoveRequest) -> rpc.MemberRemoveResponse:  # noqa: N802
        raise Refusal(BY_DLEDGER)

    @unary
    async def MemberUpdate(self, request: rpc.MemberUpdateRequest) -> rpc.MemberUpdateResponse:  # noqa: N802
        raise Refusal(BY_DLEDGER)

    @unary
    async def MemberPromote(self, request: rpc.MemberPromoteRequest) -> rpc.MemberPromoteResponse:  # noqa: N802
        raise Refusal(BY_DLEDGER)
