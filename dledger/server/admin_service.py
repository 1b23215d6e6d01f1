"""AdminService: what an operator asks of a node."""

from __future__ import annotations

import os
from collections.abc import Iterable

from dledger.common.errors import Code, error
from dledger.common.types import META_GROUP, LogPoint, NodeId, PreferredLeader, Role
from dledger.group.leader.members import Change
from dledger.group.repair.recovering import RecoveringReplica
from dledger.group.replica import Replica
from dledger.log.frame.control import member_record, settings_record
from dledger.log.log_api import Damaged
from dledger.raft.state import VoteBlocker
from dledger.rpc.server.refusals import unary, unary_with_caller
from dledger.server.cluster_node import ClusterNode
from dledger.server.meta.group_records import GroupEntry
from dledger.server.operator_lines import tell
from dledger.v1 import admin_pb2, admin_pb2_grpc
from dledger.version import __version__


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    @unary
    async def Status(self, request: admin_pb2.StatusRequest) -> admin_pb2.StatusResponse:  # noqa: N802
        node = self._node
        recovering = node.groups.recovering.get(node.groups.key_of(request.group))
        if recovering is not None:
            return _with_totals(_of_recovering(node, recovering), node)
        replica = await node.find(request.group)
        state, config, disk = replica.log.state, node.config, replica.disk_watch
        commit = await _commit_point(replica)
        response = admin_pb2.StatusResponse(
            group=node.groups.name_of(replica.group),
            cluster_id=node.cluster_id,
            id=config.id,
            role="removed" if _is_removed(node, replica) else replica.role.value,
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
            disk=admin_pb2.DiskStatus(state=disk.state.word, free_bytes=disk.free_bytes),
            log_size_bytes=replica.log.size_bytes,
            damaged_frames=replica.metrics.damaged_frames,
            repair_stuck=replica.exchange.repairer.is_stuck,
            founders_missing=_founders_missing(node, replica),
            vote_blockers=_words(replica.core.vote_blockers),
            record_ahead_ms=replica.retention.clocks.record_ahead_ms,
        )
        return _with_totals(response, node)

    @unary_with_caller
    async def TransferLeadership(  # noqa: N802
        self, request: admin_pb2.TransferLeadershipRequest, caller: str
    ) -> admin_pb2.TransferLeadershipResponse:
        replica = await self._node.find(request.group)
        target = NodeId(request.target_id) if request.target_id else None
        leader_id = await replica.handover.transfer(target, dry_run=request.dry_run)
        tell("the leadership was handed over", replica.group, caller, dry_run=request.dry_run, to=leader_id)
        return admin_pb2.TransferLeadershipResponse(leader_id=leader_id, term=replica.term)

    # Membership --------------------------------------------------------------------------------------------------

    @unary_with_caller
    async def AddLearner(self, request: admin_pb2.AddLearnerRequest, caller: str) -> admin_pb2.AddLearnerResponse:  # noqa: N802
        replica, address = await self._node.find(request.group), request.peer_address
        if replica.group != META_GROUP:
            replica.admission.check_leader()  # the leader says it, to callers that ask one node after the other
            address = await self._node.directory.address_of(NodeId(request.id), address)
        change = await replica.members.add(NodeId(request.id), address, dry_run=request.dry_run)
        await self._node.directory.tell(replica)
        tell("a member was added", replica.group, caller, dry_run=request.dry_run, member=request.id, address=address)
        return admin_pb2.AddLearnerResponse(change=_change(change))

    @unary_with_caller
    async def PromoteMember(  # noqa: N802
        self, request: admin_pb2.PromoteMemberRequest, caller: str
    ) -> admin_pb2.PromoteMemberResponse:
        replica = await self._node.find(request.group)
        change = await replica.members.promote(NodeId(request.id), dry_run=request.dry_run)
        tell("a member was promoted", replica.group, caller, dry_run=request.dry_run, member=request.id)
        return admin_pb2.PromoteMemberResponse(change=_change(change))

    @unary_with_caller
    async def RemoveMember(self, request: admin_pb2.RemoveMemberRequest, caller: str) -> admin_pb2.RemoveMemberResponse:  # noqa: N802
        replica = await self._node.find(request.group)
        if replica.group == META_GROUP:
            await self._node.directory.check_leaves(NodeId(request.id))
        change = await replica.members.remove(NodeId(request.id), dry_run=request.dry_run)
        await self._node.directory.tell(replica)
        tell("a member was removed", replica.group, caller, dry_run=request.dry_run, member=request.id)
        return admin_pb2.RemoveMemberResponse(change=_change(change))

    @unary_with_caller
    async def ReadmitMember(  # noqa: N802
        self, request: admin_pb2.ReadmitMemberRequest, caller: str
    ) -> admin_pb2.ReadmitMemberResponse:
        replica = await self._node.find(request.group)
        change = await replica.members.readmit(NodeId(request.id), dry_run=request.dry_run)
        tell("a member was readmitted", replica.group, caller, dry_run=request.dry_run, member=request.id)
        return admin_pb2.ReadmitMemberResponse(change=_change(change))

    # Groups ------------------------------------------------------------------------------------------------------

    @unary_with_caller
    async def CreateGroup(self, request: admin_pb2.CreateGroupRequest, caller: str) -> admin_pb2.CreateGroupResponse:  # noqa: N802
        members = [NodeId(each) for each in request.members]
        entry = await self._node.directory.create(request.name, members, dry_run=request.dry_run)
        tell("a group was created", entry.name, caller, dry_run=request.dry_run, id=entry.id)
        return admin_pb2.CreateGroupResponse(group=_group_info(entry))

    @unary
    async def ListGroups(self, request: admin_pb2.ListGroupsRequest) -> admin_pb2.ListGroupsResponse:  # noqa: N802
        return admin_pb2.ListGroupsResponse(groups=map(_group_info, await self._node.directory.groups()))

    @unary_with_caller
    async def DeleteGroup(self, request: admin_pb2.DeleteGroupRequest, caller: str) -> admin_pb2.DeleteGroupResponse:  # noqa: N802
        directory = self._node.directory
        entry = await directory.delete(request.name, request.id, force=request.force, dry_run=request.dry_run)
        tell("a group was deleted", entry.name, caller, dry_run=request.dry_run, id=entry.id, force=request.force)
        return admin_pb2.DeleteGroupResponse(group=_group_info(entry))

    @unary
    async def SealGroup(self, request: admin_pb2.SealGroupRequest) -> admin_pb2.SealGroupResponse:  # noqa: N802
        self._check_cluster(request.cluster_id)
        await (await self._node.find(request.group)).settings.seal()
        return admin_pb2.SealGroupResponse()

    def _check_cluster(self, cluster_id: str) -> None:
        """Of a call between nodes. Raises UNKNOWN_CLUSTER."""
        own = self._node.cluster_id
        if cluster_id != own:
            raise error(Code.UNKNOWN_CLUSTER, f"{self._node.config.id} belongs to cluster {own}, not {cluster_id}")

    # Settings and space ------------------------------------------------------------------------------------------

    @unary_with_caller
    async def SetPreferredLeaders(  # noqa: N802
        self, request: admin_pb2.SetPreferredLeadersRequest, caller: str
    ) -> admin_pb2.SetPreferredLeadersResponse:
        preferred = [PreferredLeader(NodeId(each.id), each.priority) for each in request.preferred]
        replica = await self._node.find(request.group)
        settings = await replica.settings.set_preferred(preferred, dry_run=request.dry_run)
        tell(
            "the preferred leaders were set",
            replica.group,
            caller,
            dry_run=request.dry_run,
            preferred={each.id: each.priority for each in settings.preferred},
        )
        return admin_pb2.SetPreferredLeadersResponse(settings=settings_record(settings))

    @unary_with_caller
    async def Trim(self, request: admin_pb2.TrimRequest, caller: str) -> admin_pb2.TrimResponse:  # noqa: N802
        replica = await self._node.find_for_users(request.group)
        trimmed = await replica.retention.trim(request.before_index, dry_run=request.dry_run)
        tell(
            "the log was trimmed",
            replica.group,
            caller,
            dry_run=request.dry_run,
            before_index=request.before_index,
            first_index=trimmed.first_index,
            records=trimmed.records,
        )
        return admin_pb2.TrimResponse(
            first_index=trimmed.first_index, trimmed_records=trimmed.records, trimmed_bytes=trimmed.size_bytes
        )

    @unary_with_caller
    async def SetRetention(self, request: admin_pb2.SetRetentionRequest, caller: str) -> admin_pb2.SetRetentionResponse:  # noqa: N802
        replica = await self._node.find_for_users(request.group)
        max_age_ms = request.max_age_ms if request.HasField("max_age_ms") else None
        max_bytes = request.max_bytes if request.HasField("max_bytes") else None
        settings, trimmed = await replica.retention.set(max_age_ms, max_bytes, dry_run=request.dry_run)
        tell(
            "the retention was set",
            replica.group,
            caller,
            dry_run=request.dry_run,
            max_age_ms=settings.retention_max_age_ms,
            max_bytes=settings.retention_max_bytes,
        )
        return admin_pb2.SetRetentionResponse(
            settings=settings_record(settings), trimmed_records=trimmed.records, trimmed_bytes=trimmed.size_bytes
        )


def _of_recovering(node: ClusterNode, recovering: RecoveringReplica) -> admin_pb2.StatusResponse:
    """The known facts of a log that cannot be opened yet. How far it is committed in records is not."""
    config, state = node.config, recovering.log.state
    return admin_pb2.StatusResponse(
        group=node.groups.name_of(recovering.group),
        cluster_id=node.cluster_id,
        id=config.id,
        role="recovering",
        term=recovering.term,
        leader_id=recovering.leader_id,
        first_index=state.first_index,
        commit_index=-1,
        last_index=-1,
        pid=os.getpid(),
        data_dir=str(config.data_dir),
        durability=config.durability.value,
        version=__version__,
        address=config.client_address,
        peer_address=config.peer_address,
        http_address=config.http_address,
        members=map(member_record, state.members),
        settings=settings_record(state.settings),
        damaged_frames=recovering.metrics.damaged_frames,
        repair_stuck=recovering.exchange.repairer.is_stuck,
        vote_blockers=_words(recovering.core.vote_blockers),
    )


def _with_totals(response: admin_pb2.StatusResponse, node: ClusterNode) -> admin_pb2.StatusResponse:
    """With what is so of the node, over all its groups."""
    replicas = list(node.groups.replicas.values())
    response.groups = len(node.groups.all())
    response.groups_led = sum(replica.role is Role.LEADER for replica in replicas)
    response.node_log_size_bytes = sum(replica.log.size_bytes for replica in replicas)
    response.clock_ahead_ms = max((each.retention.clocks.clock_ahead_ms for each in replicas), default=0)
    response.node_damaged_frames = sum(each.damaged_frames for each in node.groups.metrics.values())
    for peer, refusal in sorted(node.refusals.items()):
        response.refused_by.add(id=peer, reason=refusal.code.value, message=str(refusal))
    return response


def _founders_missing(node: ClusterNode, replica: Replica) -> list[NodeId]:
    """The log of a new member of another group than `meta` is empty too, and no cluster is founded for that."""
    return node.founders_missing if replica.group == META_GROUP and replica.log.last.position == 0 else []


def _is_removed(node: ClusterNode, replica: Replica) -> bool:
    """By the word of others, while it hears no leader. A replica with an empty log was not added yet."""
    says_so = any(refusal.code is Code.UNKNOWN_MEMBER for refusal in node.refusals.values())
    return says_so and not replica.leader_id and replica.log.last.position > 0


def _group_info(entry: GroupEntry) -> admin_pb2.GroupInfo:
    founders, members = map(member_record, entry.founders), map(member_record, entry.members)
    return admin_pb2.GroupInfo(
        name=entry.name, id=entry.id, founders=founders, members=members, is_being_deleted=entry.is_sealing
    )


def _words(vote_blockers: Iterable[VoteBlocker]) -> list[str]:
    return sorted(each.value for each in vote_blockers)


async def _commit_point(replica: Replica) -> LogPoint:
    position = max(replica.core.commit_position, replica.log.state.start.position)
    try:
        return await replica.log.point_at(position)
    except Damaged:
        return LogPoint(position, replica.log.term_at(position), 0)


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
