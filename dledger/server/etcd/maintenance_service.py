"""etcdserverpb.Maintenance."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.etcdpb import rpc_pb2_grpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.backup import backup_blobs
from dledger.server.etcd.headers import fill_header, new_header
from dledger.server.etcd.refusals import NO_LEADER, NOT_LEADER, Context, EtcdError, Refusal, streaming, unary
from dledger.store.commands import command

API_VERSION = "3.7.3"
"""Of the etcd whose answers these are. Clients choose by it what they may ask for."""
NOT_NEEDED = EtcdError("UNIMPLEMENTED", "dledger: there is nothing to defragment: the store lies in memory")
NO_DOWNGRADE = EtcdError("UNIMPLEMENTED", "dledger: a cluster of dledger is not downgraded by etcd's clients")


class MaintenanceService(rpc_pb2_grpc.MaintenanceServicer):
    def __init__(self, backend: StoreBackend) -> None:
        self.backend = backend

    @unary
    async def Alarm(self, request: rpc.AlarmRequest) -> rpc.AlarmResponse:  # noqa: N802
        if request.action == rpc.AlarmRequest.GET:
            answer = rpc.AlarmResponse(alarms=self.backend.store.alarms.members(request.alarm))
        else:
            answer = await self.backend.submit(command(request))
        fill_header(self.backend, answer)
        return answer

    @unary
    async def Status(self, request: rpc.StatusRequest) -> rpc.StatusResponse:  # noqa: N802
        backend, store = self.backend, self.backend.store
        answer = rpc.StatusResponse(
            header=new_header(backend),
            version=API_VERSION,
            storageVersion=API_VERSION.rpartition(".")[0] + ".0",
            leader=backend.leader_id,
            raftIndex=backend.commit_index,
            raftAppliedIndex=backend.applied_index,
            raftTerm=backend.term,
            dbSize=store.pairs.size_bytes,
            dbSizeInUse=store.pairs.size_bytes,
            dbSizeQuota=backend.quota_bytes,
            isLearner=any(each.is_learner for each in backend.members() if each.id == backend.member_id),
            downgradeInfo=rpc.DowngradeInfo(enabled=False),
        )
        if not backend.leader_id:
            answer.errors.append(NO_LEADER.text)
        answer.errors.extend(map(_words_of, store.alarms.members()))
        return answer

    @unary
    async def Defragment(self, request: rpc.DefragmentRequest) -> rpc.DefragmentResponse:  # noqa: N802
        raise Refusal(NOT_NEEDED)

    @unary
    async def Downgrade(self, request: rpc.DowngradeRequest) -> rpc.DowngradeResponse:  # noqa: N802
        raise Refusal(NO_DOWNGRADE)

    @unary
    async def Hash(self, request: rpc.HashRequest) -> rpc.HashResponse:  # noqa: N802
        of = self.backend.store.hash_kv(0)
        return rpc.HashResponse(header=new_header(self.backend), hash=of.hash)

    @unary
    async def HashKV(self, request: rpc.HashKVRequest) -> rpc.HashKVResponse:  # noqa: N802
        answer = self.backend.store.hash_kv(request.revision)
        fill_header(self.backend, answer)
        return answer

    @streaming
    async def Snapshot(  # noqa: N802
        self, request: rpc.SnapshotRequest, _context: Context
    ) -> AsyncGenerator[rpc.SnapshotResponse, None]:
        await self.backend.barrier()
        store = self.backend.store
        left = store.pairs.size_bytes
        for blob in backup_blobs(store.checkpoint()):
            left = max(1, left - len(blob))  # no more than a guess: 0 would say that nothing follows
            yield rpc.SnapshotResponse(blob=blob, remaining_bytes=left, version=API_VERSION)

    @unary
    async def MoveLeader(self, request: rpc.MoveLeaderRequest) -> rpc.MoveLeaderResponse:  # noqa: N802
        if self.backend.leader_id != self.backend.member_id:
            raise Refusal(NOT_LEADER)
        await self.backend.move_leader(request.targetID)
        return rpc.MoveLeaderResponse()


def _words_of(alarm: rpc.AlarmMember) -> str:
    """As etcd says it: the message's text on one line."""
    member = f"memberID:{alarm.memberID} " if alarm.memberID else ""
    return f"{member}alarm:{rpc.AlarmType.Name(alarm.alarm)}"
