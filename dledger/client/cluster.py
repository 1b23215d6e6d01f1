"""The state of a whole group, as its members tell it: asked all at once, each with a short deadline."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dledger.client.rpc import mutate, unary
from dledger.errors import DLedgerError
from dledger.v1 import admin_pb2

if TYPE_CHECKING:
    from dledger.client.channels import Channels
    from dledger.client.leader import Leaders, Metadata

STATUS_TIMEOUT_MS = 1_500


@dataclass(frozen=True, slots=True)
class FollowerInfo:
    """A follower as the leader sees it: what its dispatcher does, and how far its durable log is known to agree."""

    id: str
    state: str
    match_position: int
    lag_frames: int
    connected: bool


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One member. When it is not ``reachable`` only what the others know of it is set, and ``problem`` says why."""

    id: str
    address: str
    peer_address: str = ""
    http_address: str = ""
    role: str = "unknown"
    term: int = 0
    first_index: int = 0
    commit_index: int = -1
    last_index: int = -1
    position: int = 0
    chain: str = ""
    """The chain checksum at ``position``, 16 hexadecimal digits: equal chains mean equal logs up to there."""
    pid: int = 0
    data_dir: str = ""
    durability: str = ""
    version: str = ""
    reachable: bool = False
    leader_id: str | None = None
    followers: tuple[FollowerInfo, ...] = ()
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the documented fields."""
        whole = asdict(self)
        for extra in ("leader_id", "followers", "problem"):
            del whole[extra]
        return whole


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The group. ``leader`` is the id of the node that leads, else of the one that most believe to lead, or None."""

    group: str
    term: int
    leader: str | None
    cluster_id: str
    nodes: tuple[NodeStatus, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the documented fields."""
        nodes = [node.as_dict() for node in self.nodes]
        return {
            "group": self.group,
            "term": self.term,
            "leader": self.leader,
            "cluster_id": self.cluster_id,
            "nodes": nodes,
        }

    def node(self, node_id: str) -> NodeStatus | None:
        """The member of that id."""
        return next((node for node in self.nodes if node.id == node_id), None)

    @property
    def healthy(self) -> bool:
        """Whether there is a reachable leader, and a majority of the nodes is reachable."""
        reachable = sum(node.reachable for node in self.nodes)
        leader = self.node(self.leader) if self.leader else None
        return leader is not None and leader.reachable and 2 * reachable > len(self.nodes)


async def cluster_status(channels: Channels, leaders: Leaders, group: str) -> ClusterStatus:
    """Asks every member. Raises Unavailable only if no endpoint answers at all."""
    metadata = await leaders.metadata()
    members = [NodeStatus(m.id, m.address, m.peer_address, m.http_address) for m in metadata.members]
    nodes = await asyncio.gather(*(_node_status(channels, member, group) for member in members))
    return _summary(metadata, nodes, group)


def _summary(metadata: Metadata, nodes: list[NodeStatus], group: str) -> ClusterStatus:
    leading = max((node for node in nodes if node.role == "leader"), key=lambda node: node.term, default=None)
    if leading is not None:
        return ClusterStatus(group, leading.term, leading.id, metadata.cluster_id, tuple(nodes))
    term = max([metadata.term, *(node.term for node in nodes)])
    named = [node.leader_id for node in nodes if node.leader_id and node.term == term]
    leader = max(named, key=named.count, default=None)
    return ClusterStatus(group, term, leader, metadata.cluster_id, tuple(nodes))


async def _node_status(channels: Channels, member: NodeStatus, group: str) -> NodeStatus:
    if not member.address:
        return member
    endpoint = channels.at(member.address)
    try:
        request = admin_pb2.StatusRequest(group=group)
        answer = await unary(endpoint, endpoint.admin.Status, request, STATUS_TIMEOUT_MS)
    except DLedgerError as refusal:
        return NodeStatus(member.id, member.address, member.peer_address, member.http_address, problem=str(refusal))
    return _from_wire(answer, member)


def _from_wire(answer: admin_pb2.StatusResponse, member: NodeStatus) -> NodeStatus:
    followers = tuple(
        FollowerInfo(item.id, item.state, item.match_position, item.lag_frames, item.connected)
        for item in answer.followers
    )
    return NodeStatus(
        id=answer.id or member.id,
        address=answer.address or member.address,
        peer_address=answer.peer_address or member.peer_address,
        http_address=answer.http_address or member.http_address,
        role=answer.role,
        term=answer.term,
        first_index=answer.first_index,
        commit_index=answer.commit_index,
        last_index=answer.last_index,
        position=answer.position,
        chain=f"{answer.chain:016x}",
        pid=answer.pid,
        data_dir=answer.data_dir,
        durability=answer.durability,
        version=answer.version,
        reachable=True,
        leader_id=answer.leader_id or None,
        followers=followers,
    )


async def transfer_leadership(leaders: Leaders, group: str, target: str | None, timeout_ms: float) -> tuple[str, int]:
    """Asks the leader to hand over. Returns who leads then, and in which term. Raises TransferFailed and others."""
    endpoint = await leaders.find()
    request = admin_pb2.TransferLeadershipRequest(group=group, target_id=target or "")
    try:
        answer = await mutate(endpoint, endpoint.admin.TransferLeadership, request, timeout_ms)
    except DLedgerError as refusal:
        leaders.lost(endpoint.address, refusal)
        raise
    return answer.leader_id, answer.term
