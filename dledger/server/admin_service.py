"""AdminService: what an operator asks of a node."""

from __future__ import annotations

import os

from dledger.server.members import Change
from dledger.server.node import Node
from dledger.server.replica import Replica
from dledger.server.rpc import unary
from dledger.storage.control import member_record, settings_record
from dledger.types import NodeId, PreferredLeader
from dledger.v1 import admin_pb2, admin_pb2_grpc
from dledger.version import __version__


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    def __init__(self, node: Node) -> None:
        self._node = node

    @unary
    async def Status(self, request: admin_pb2.StatusRequest) -> admin_pb2.StatusResponse:  # noqa: N802
        node = self._node
        replica = node.replica(request.group)
        state, config, disk = replica.log.state, node.config, replica.disk_watch
        commit = await replica.log.point_at(max(replica.core.commit_position, state.start.position))
        return admin_pb2.StatusResponse(
            group=replica.group,
            cluster_id=node.cluster_id,
            id=config.id,
            role=replica.role.value,
            term=replica.term,
            leader_id=replica.leader_id,
            first_index=state.first_index,
            commit_index=replica.reader.commit_index,
            last_index=state.next_index - 1,
            position=commit.position,
            chain=commit.chain,
            pid=os.getpid(),
            data_dir=str(config.data_dir),
            durability=config.durability.value,
            version=__version__,
            address=config.client_address,
            peer_address=config.peer_address,
            http_address=config.http_address,
            followers=_followers(replica),
            members=map(member_record, state.members),
            settings=settings_record(state.settings),
            disk=admin_pb2.DiskStatus(state=disk.state.value, free_bytes=disk.free_bytes),
            log_size_bytes=replica.log.size_bytes,
        )

    @unary
    async def TransferLeadership(  # noqa: N802
        self, request: admin_pb2.TransferLeadershipRequest
    ) -> admin_pb2.TransferLeadershipResponse:
        replica = self._node.replica(request.group)
        target = NodeId(request.target_id) if request.target_id else None
        leader_id = await replica.handover.transfer(target)
        return admin_pb2.TransferLeadershipResponse(leader_id=leader_id, term=replica.term)

    # Membership --------------------------------------------------------------------------------------------------

    @unary
    async def AddLearner(self, request: admin_pb2.AddLearnerRequest) -> admin_pb2.AddLearnerResponse:  # noqa: N802
        members = self._node.replica(request.group).members
        change = await members.add(NodeId(request.id), request.peer_address, dry_run=request.dry_run)
        return admin_pb2.AddLearnerResponse(change=_change(change))

    @unary
    async def PromoteMember(  # noqa: N802
        self, request: admin_pb2.PromoteMemberRequest
    ) -> admin_pb2.PromoteMemberResponse:
        members = self._node.replica(request.group).members
        change = await members.promote(NodeId(request.id), dry_run=request.dry_run)
        return admin_pb2.PromoteMemberResponse(change=_change(change))

    @unary
    async def RemoveMember(self, request: admin_pb2.RemoveMemberRequest) -> admin_pb2.RemoveMemberResponse:  # noqa: N802
        members = self._node.replica(request.group).members
        change = await members.remove(NodeId(request.id), dry_run=request.dry_run)
        return admin_pb2.RemoveMemberResponse(change=_change(change))

    @unary
    async def ReadmitMember(  # noqa: N802
        self, request: admin_pb2.ReadmitMemberRequest
    ) -> admin_pb2.ReadmitMemberResponse:
        members = self._node.replica(request.group).members
        change = await members.readmit(NodeId(request.id), dry_run=request.dry_run)
        return admin_pb2.ReadmitMemberResponse(change=_change(change))

    # Settings and space ------------------------------------------------------------------------------------------

    @unary
    async def SetPreferredLeaders(  # noqa: N802
        self, request: admin_pb2.SetPreferredLeadersRequest
    ) -> admin_pb2.SetPreferredLeadersResponse:
        preferred = [PreferredLeader(NodeId(each.id), each.priority) for each in request.preferred]
        settings = await self._node.replica(request.group).settings.set_preferred(preferred)
        return admin_pb2.SetPreferredLeadersResponse(settings=settings_record(settings))

    @unary
    async def Trim(self, request: admin_pb2.TrimRequest) -> admin_pb2.TrimResponse:  # noqa: N802
        retention = self._node.replica(request.group).retention
        trimmed = await retention.trim(request.before_index, dry_run=request.dry_run)
        return admin_pb2.TrimResponse(
            first_index=trimmed.first_index, trimmed_records=trimmed.records, trimmed_bytes=trimmed.size_bytes
        )

    @unary
    async def SetRetention(self, request: admin_pb2.SetRetentionRequest) -> admin_pb2.SetRetentionResponse:  # noqa: N802
        retention = self._node.replica(request.group).retention
        settings, trimmed = await retention.set(request.max_age_ms, request.max_bytes, dry_run=request.dry_run)
        return admin_pb2.SetRetentionResponse(
            settings=settings_record(settings), trimmed_records=trimmed.records, trimmed_bytes=trimmed.size_bytes
        )


def _change(change: Change) -> admin_pb2.MembershipChange:
    return admin_pb2.MembershipChange(members=map(member_record, change.members), position=change.position)


def _followers(replica: Replica) -> list[admin_pb2.FollowerStatus]:
    last, voters = replica.log.last.position, replica.core.membership.voters
    return [
        admin_pb2.FollowerStatus(
            id=peer,
            state=dispatcher.progress.state.value,
            match_position=dispatcher.progress.match,
            lag_frames=last - dispatcher.progress.match,
            connected=replica.is_connected(peer),
            counts=peer in voters and dispatcher.progress.counts,
            voter=peer in voters,
        )
        for peer, dispatcher in replica.dispatchers.items()
    ]
