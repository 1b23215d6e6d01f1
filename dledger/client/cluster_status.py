"""The state of a whole group, as its members tell it: asked all at once, each with a short deadline."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from dledger.client.admin_results import members_from_wire, settings_from_wire
from dledger.client.stubs import LogStubs
from dledger.common.deadline import Deadline
from dledger.common.errors import DLedgerError
from dledger.common.types import GroupSettings, Member, NodeId
from dledger.rpc.client.failures import unary
from dledger.v1 import admin_pb2

if TYPE_CHECKING:
    from dledger.client.leader_locator import LeaderLocator
    from dledger.client.metadata import Metadata
    from dledger.rpc.client.channels import Channels

STATUS_TIMEOUT_MS = 1_500
NO_SETTINGS = GroupSettings()
REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class FollowerInfo:
    """A follower as the leader sees it: what its dispatcher does, and how far its durable log is known to agree."""

    id: str
    state: str
    match_position: int
    lag_frames: int
    connected: bool
    counts: bool = False
    """Whether the leader's quorum may rest on it: it is a voter, and its disk is not in doubt."""
    voter: bool = True


@dataclass(frozen=True, slots=True)
class DiskInfo:
    """The file system that holds a node's log. ``state`` is ok, low, full, hung, or unknown."""

    state: str = "unknown"
    free_bytes: int | None = None

    @property
    def takes_appends(self) -> bool:
        """As far as it is known."""
        return self.state not in ("full", "hung")


@dataclass(frozen=True, slots=True)
class PeerRefusal:
    """Another node that refuses this one, or is refused by it, with the code and the reason."""

    id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One member. When it is not ``reachable`` only what the others know of it is set, and ``problem`` says why."""

    id: str
    address: str
    peer_address: str = ""
    http_address: str = ""
    role: str = "unknown"
    """leader, follower, candidate or learner; recovering: its log is being repaired; removed: others say that it is no
    member any more."""
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
    voter: bool = True
    counts: bool | None = None
    """Whether the leader's quorum may rest on it: it is a voter, and its disk is not in doubt. A disk in doubt is
    another one, or an older state, than the admitted one: readmit the node. None when there is no leader that says
    so."""
    lag_frames: int | None = None
    """Behind the leader's log, as the leader knows it; None when it does not, or there is no leader."""
    disk: DiskInfo = DiskInfo()
    log_size_bytes: int = 0
    damaged_frames: int = 0
    """Stored frames that are damaged: not served, and asked of the other nodes."""
    repair_stuck: bool = False
    """No node that was asked has a good copy of some of them."""
    groups: int = 0
    """How many groups it has a replica of, this one included."""
    groups_led: int = 0
    node_log_size_bytes: int = 0
    """What the logs of all its groups take."""
    node_damaged_frames: int = 0
    """Damaged frames in the logs of all its groups."""
    leader_id: str | None = None
    followers: tuple[FollowerInfo, ...] = ()
    members: tuple[Member, ...] = ()
    """As its log has them."""
    settings: GroupSettings = NO_SETTINGS
    """As its log has them."""
    vote_blockers: tuple[str, ...] = ()
    """Why it does not stand for election, or does not vote either: clauses such as "its log is damaged"."""
    founders_missing: tuple[str, ...] = ()
    """Of a node with an empty log: the nodes that it has to meet, as new as itself, before a cluster is founded."""
    refused_by: tuple[PeerRefusal, ...] = ()
    """Nodes that it cannot speak with, by their word or its own."""
    clock_ahead_ms: int = 0
    """Of a node that leads any group: how far its clock is ahead of those of a majority. 0: not more than 10 s."""
    record_ahead_ms: int = 0
    """Of the leader: how far the last record's time is ahead of the clocks. 0: not more than a minute."""
    problem: str = ""

    @property
    def acknowledges(self) -> bool:
        """Whether a majority can rest on it: reachable, not in doubt, with room on its disk, taking appends."""
        is_in_service = self.reachable and self.role not in ("recovering", REMOVED)
        return is_in_service and self.counts is not False and self.disk.takes_appends

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the documented fields."""
        whole = asdict(self)
        for extra in ("leader_id", "followers", "members", "settings", "founders_missing", "problem"):
            del whole[extra]
        return whole


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The group. ``leader`` is the id of the leading node, else of the node that most believe to lead, or None."""

    group: str
    term: int
    leader: str | None
    cluster_id: str
    nodes: tuple[NodeStatus, ...]
    """The members, learners too, as the leader knows them. While there is no leader, removed nodes, too."""
    settings: GroupSettings = NO_SETTINGS

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the documented fields."""
        members = [{"id": node.id, "peer_address": node.peer_address, "voter": node.voter} for node in self.nodes]
        retention = {
            "max_age_ms": self.settings.retention_max_age_ms,
            "max_bytes": self.settings.retention_max_bytes,
        }
        return {
            "group": self.group,
            "term": self.term,
            "leader": self.leader,
            "cluster_id": self.cluster_id,
            "members": members,
            "preferred": {each.id: each.priority for each in self.settings.preferred},
            "retention": retention,
            "nodes": [node.as_dict() for node in self.nodes],
        }

    def node(self, node_id: str) -> NodeStatus | None:
        """The member of that id."""
        return next((node for node in self.nodes if node.id == node_id), None)

    @property
    def voters(self) -> tuple[NodeStatus, ...]:
        """The members with a vote: a majority of them decides."""
        return tuple(node for node in self.nodes if node.voter)

    @property
    def has_majority(self) -> bool:
        """Whether a majority of the voters can acknowledge."""
        voters = self.voters
        return 2 * sum(node.acknowledges for node in voters) > len(voters)

    @property
    def full(self) -> tuple[NodeStatus, ...]:
        """The voters with a disk that takes no appends."""
        return tuple(node for node in self.voters if node.reachable and not node.disk.takes_appends)

    @property
    def damaged(self) -> tuple[NodeStatus, ...]:
        """The members with damaged frames that are not repaired yet."""
        return tuple(node for node in self.nodes if node.damaged_frames)

    @property
    def doubted(self) -> tuple[NodeStatus, ...]:
        """The voters that do not count: their disk is in doubt."""
        return tuple(node for node in self.voters if node.counts is False)

    @property
    def healthy(self) -> bool:
        """Whether appends can be acknowledged: a reachable leader with room, and a majority of the voters."""
        leader = self.node(self.leader) if self.leader else None
        return leader is not None and leader.reachable and leader.disk.takes_appends and self.has_majority


async def cluster_status(channels: Channels, leaders: LeaderLocator, group: str, timeout_ms: float) -> ClusterStatus:
    """Asks every member. Raises Unavailable, or DeadlineExceeded, only if no endpoint answers at all.

    Half of the time is for learning the members, so some is left to ask them.
    """
    deadline = Deadline(timeout_ms)
    metadata = await leaders.newest_metadata(timeout_ms / 2)
    members = [NodeStatus(m.id, m.address, m.peer_address, m.http_address, voter=m.voter) for m in metadata.members]
    limit_ms = min(max(1.0, deadline.left_ms), STATUS_TIMEOUT_MS)
    strangers = [NodeStatus("", each, voter=False) for each in _strangers(metadata, leaders)]
    told = await asyncio.gather(*(_node_status(channels, each, group, limit_ms) for each in members + strangers))
    leaders.check()  # what a client that is closed did not hear says nothing about the nodes
    nodes = told[: len(members)]
    ids = {node.id for node in nodes}
    removed = [node for node in told[len(members) :] if node.role == REMOVED and node.id not in ids]
    return _summary(metadata, nodes + removed, group)


def _strangers(metadata: Metadata, leaders: LeaderLocator) -> list[str]:
    """The nodes that the client knows beside the members: while nobody leads one of them may be a removed node."""
    if metadata.leader_id is not None:
        return []
    return [address for address in leaders.addresses if not any(address == each.address for each in metadata.members)]


def _summary(metadata: Metadata, nodes: list[NodeStatus], group: str) -> ClusterStatus:
    reachable = [node for node in nodes if node.reachable]
    leading = max((node for node in nodes if node.role == "leader"), key=lambda node: node.term, default=None)
    if leading is not None:
        seen = tuple(_as_the_leader_sees(node, leading) for node in nodes)
        return ClusterStatus(group, leading.term, leading.id, metadata.cluster_id, seen, leading.settings)
    term = max([metadata.term, *(node.term for node in nodes)])
    named = [node.leader_id for node in nodes if node.leader_id and node.term == term]
    leader = max(named, key=named.count, default=None)
    newest = max(reachable, key=lambda node: (node.term, node.position), default=None)
    settings = newest.settings if newest else NO_SETTINGS
    return ClusterStatus(group, term, leader, metadata.cluster_id, tuple(nodes), settings)


def _as_the_leader_sees(node: NodeStatus, leader: NodeStatus) -> NodeStatus:
    """Adds the facts that only the leader has: whether the node votes now, whether its vote counts, and how far it
    lags."""
    lags = {follower.id: follower.lag_frames for follower in leader.followers} | {leader.id: 0}
    votes = {member.id: member.voter for member in leader.members}
    voter = votes.get(NodeId(node.id), node.voter)
    counts = {follower.id: follower.counts for follower in leader.followers} | {leader.id: voter}
    return replace(node, lag_frames=lags.get(node.id), voter=voter, counts=counts.get(node.id))


async def _node_status(channels: Channels, member: NodeStatus, group: str, timeout_ms: float) -> NodeStatus:
    if not member.address:
        return replace(member, problem="no node that answers knows its address for clients")
    try:
        endpoint = channels.at(member.address)
        request = admin_pb2.StatusRequest(group=group)
        answer = await unary(endpoint, endpoint.stub(LogStubs).admin.Status, request, timeout_ms)
    except DLedgerError as refusal:
        return replace(member, problem=str(refusal))
    return _from_wire(answer, member)


def _from_wire(answer: admin_pb2.StatusResponse, member: NodeStatus) -> NodeStatus:
    followers = tuple(
        FollowerInfo(item.id, item.state, item.match_position, item.lag_frames, item.connected, item.counts, item.voter)
        for item in answer.followers
    )
    return replace(
        member,
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
        disk=DiskInfo(answer.disk.state, answer.disk.free_bytes) if answer.disk.state else DiskInfo(),
        log_size_bytes=answer.log_size_bytes,
        damaged_frames=answer.damaged_frames,
        repair_stuck=answer.repair_stuck,
        vote_blockers=tuple(answer.vote_blockers),
        founders_missing=tuple(answer.founders_missing),
        refused_by=tuple(PeerRefusal(each.id, each.reason, each.message) for each in answer.refused_by),
        groups=answer.groups,
        groups_led=answer.groups_led,
        node_log_size_bytes=answer.node_log_size_bytes,
        node_damaged_frames=answer.node_damaged_frames,
        clock_ahead_ms=answer.clock_ahead_ms,
        record_ahead_ms=answer.record_ahead_ms,
        leader_id=answer.leader_id or None,
        followers=followers,
        members=members_from_wire(answer.members),
        settings=settings_from_wire(answer.settings),
    )
