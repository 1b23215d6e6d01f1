# ruff: noqa: N802  gRPC names its methods so
"""AdminService in front of a log in memory: members and settings as the real one keeps them, as far as clients see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Member, NodeId
from dledger.v1 import admin_pb2, admin_pb2_grpc, raft_pb2
from tests.unit.client.refusals import abort

if TYPE_CHECKING:
    from tests.unit.client.fake_server import FakeCluster, FakeNode

LAG_FRAMES = 7
"""Of every follower."""


class FakeAdmin(admin_pb2_grpc.AdminServiceServicer):
    """What a node answers to operators."""

    cluster: FakeCluster
    id: str
    address: str
    is_silent: bool

    def check_leader(self, group: str = "default") -> None:
        """Raises NOT_LEADER."""
        raise NotImplementedError

    def leader_of(self, group: str) -> FakeNode | None:
        """Raises UNKNOWN_GROUP, NOT_HERE."""
        raise NotImplementedError

    async def Status(self, request: Any, context: Any) -> Any:
        cluster = self.cluster
        await cluster.answering("Status", silent=self.is_silent)
        try:
            leader = self.leader_of(request.group)
        except DLedgerError as refusal:
            await abort(context, refusal)
        leads = leader is self
        followers = [
            admin_pb2.FollowerStatus(
                id=each.id,
                lag_frames=LAG_FRAMES,
                connected=True,
                voter=each.voter,
                counts=each.voter and each.id not in cluster.doubted,
            )
            for each in cluster.members.values()
            if leads and each.id != self.id
        ]
        return admin_pb2.StatusResponse(
            group=request.group,
            cluster_id="fake",
            id=self.id,
            role="leader" if leads else "follower",
            term=cluster.term,
            leader_id=leader.id if leader else "",
            commit_index=cluster.end_index - 1,
            last_index=cluster.end_index - 1,
            chain=0xABC,
            address=self.address,
            followers=followers,
            members=self._records(),
            settings=cluster.settings,
            disk=admin_pb2.DiskStatus(state="ok", free_bytes=1 << 30),
            log_size_bytes=4096,
            groups=2 + len(cluster.groups),
        )

    def _records(self) -> list[raft_pb2.MemberRecord]:
        return [
            raft_pb2.MemberRecord(id=each.id, peer_address=each.peer_address, voter=each.voter)
            for each in self.cluster.members.values()
        ]

    async def _as_leader(self, request: Any, context: Any, make: Any) -> Any:
        """The answer that ``make`` makes, with the faults of the cluster before and behind it."""
        faults = self.cluster.faults
        await self.cluster.answering("Change")
        try:
            self.check_leader()
            if faults.refuse_admin:
                code = faults.refuse_admin.pop(0)
                raise error(code, f"refused with {code.name}")
            answer = make()
        except DLedgerError as refusal:
            await abort(context, refusal)
        if faults.drop_admin_answers and not getattr(request, "dry_run", False):
            faults.drop_admin_answers -= 1
            faults.on_dropped()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost")
        return answer

    def _change(self, request: Any, changed: Member | None) -> admin_pb2.MembershipChange:
        """``changed`` in the place of the member of its id; None: that one goes."""
        members = self.cluster.members
        before = dict(members)
        if changed is None:
            members.pop(request.id, None)
        else:
            members[request.id] = changed
        records, is_new = self._records(), members != before
        if request.dry_run:
            self.cluster.members = before
        changes = is_new and not request.dry_run
        self.cluster.admin_changes += changes
        return admin_pb2.MembershipChange(members=records, position=self.cluster.admin_changes if changes else 0)

    def _member(self, node_id: str) -> Member:
        if node_id not in self.cluster.members:
            raise error(Code.UNKNOWN_MEMBER, f"there is no member {node_id!r}")
        return self.cluster.members[node_id]

    async def TransferLeadership(self, request: Any, context: Any) -> Any:
        def hand_over() -> Any:
            self._member(request.target_id)
            target = next(node for node in self.cluster.nodes if node.id == request.target_id)
            if target is not self.cluster.leader:
                self.cluster.lead(target)
            return admin_pb2.TransferLeadershipResponse(leader_id=target.id, term=self.cluster.term)

        return await self._as_leader(request, context, hand_over)

    async def AddLearner(self, request: Any, context: Any) -> Any:
        def add() -> Any:
            known = self.cluster.members.get(request.id)
            if known is not None and known.peer_address != request.peer_address:
                raise error(Code.CHANGE_REFUSED, f"{request.id} is a member at {known.peer_address}")
            learner = known or Member(NodeId(request.id), request.peer_address, voter=False)
            return admin_pb2.AddLearnerResponse(change=self._change(request, learner))

        return await self._as_leader(request, context, add)

    async def PromoteMember(self, request: Any, context: Any) -> Any:
        def promote() -> Any:
            voter = self._member(request.id)._replace(voter=True)
            return admin_pb2.PromoteMemberResponse(change=self._change(request, voter))

        return await self._as_leader(request, context, promote)

    async def RemoveMember(self, request: Any, context: Any) -> Any:
        def remove() -> Any:
            if request.id == self.id:
                self.cluster.lead(next(node for node in self.cluster.nodes if node is not self))
                self.check_leader()
            return admin_pb2.RemoveMemberResponse(change=self._change(request, None))

        return await self._as_leader(request, context, remove)

    async def ReadmitMember(self, request: Any, context: Any) -> Any:
        def readmit() -> Any:
            learner = self._member(request.id)._replace(voter=False)
            return admin_pb2.ReadmitMemberResponse(change=self._change(request, learner))

        return await self._as_leader(request, context, readmit)

    async def SetPreferredLeaders(self, request: Any, context: Any) -> Any:
        def prefer() -> Any:
            del self.cluster.settings.preferred[:]
            self.cluster.settings.preferred.extend(request.preferred)
            return admin_pb2.SetPreferredLeadersResponse(settings=self.cluster.settings)

        return await self._as_leader(request, context, prefer)

    async def Trim(self, request: Any, context: Any) -> Any:
        def trim() -> Any:
            trimmed = request.before_index - self.cluster.first_index
            if not request.dry_run:
                self.cluster.first_index = request.before_index
            return admin_pb2.TrimResponse(
                first_index=request.before_index, trimmed_records=trimmed, trimmed_bytes=100 * trimmed
            )

        return await self._as_leader(request, context, trim)

    async def SetRetention(self, request: Any, context: Any) -> Any:
        def keep() -> Any:
            settings = raft_pb2.GroupSettings()
            settings.CopyFrom(self.cluster.settings)
            if request.HasField("max_age_ms"):
                settings.retention_max_age_ms = request.max_age_ms
            if request.HasField("max_bytes"):
                settings.retention_max_bytes = request.max_bytes
            if not request.dry_run:
                self.cluster.settings = settings
            return admin_pb2.SetRetentionResponse(settings=settings, trimmed_records=5, trimmed_bytes=500)

        return await self._as_leader(request, context, keep)

    async def CreateGroup(self, request: Any, context: Any) -> Any:
        def create() -> Any:
            if request.name in self.cluster.groups:
                raise error(Code.GROUP_EXISTS, f"there is a group {request.name!r} already")
            founders = [self._member(node_id) for node_id in request.members or self.cluster.members]
            records = [raft_pb2.MemberRecord(id=each.id, peer_address=each.peer_address) for each in founders]
            group = admin_pb2.GroupInfo(name=request.name, id=self.cluster.groups_made + 1, founders=records)
            if not request.dry_run:
                self.cluster.groups_made += 1
                self.cluster.groups[request.name] = group
            return admin_pb2.CreateGroupResponse(group=group)

        return await self._as_leader(request, context, create)

    async def ListGroups(self, request: Any, context: Any) -> Any:
        def tell() -> Any:
            groups = [group for _, group in sorted(self.cluster.groups.items())]
            return admin_pb2.ListGroupsResponse(groups=groups)

        return await self._as_leader(request, context, tell)

    async def DeleteGroup(self, request: Any, context: Any) -> Any:
        def delete() -> Any:
            if request.name not in self.cluster.groups:
                raise error(Code.UNKNOWN_GROUP, f"there is no group {request.name!r}")
            group = self.cluster.groups[request.name]
            if request.id not in (0, group.id):
                raise error(Code.CHANGE_REFUSED, f"group {request.name!r} is another one by now")
            if not request.dry_run:
                del self.cluster.groups[request.name]
            return admin_pb2.DeleteGroupResponse(group=group)

        return await self._as_leader(request, context, delete)

    async def SealGroup(self, request: Any, context: Any) -> Any:
        return await self._as_leader(request, context, admin_pb2.SealGroupResponse)
