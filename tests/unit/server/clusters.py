"""Clusters of whole nodes, each with its directory of groups, in one process: real disks, a network in memory, and
calls between nodes without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import TypeVar

from dledger.client.between_nodes import OtherNodes
from dledger.common.config import NodeConfig, Timings
from dledger.common.errors import Code, DLedgerError, GroupExists
from dledger.common.types import DEFAULT_GROUP, META_GROUP, NodeId, Role
from dledger.group.replica import Replica
from dledger.server.cluster_node import ClusterNode
from dledger.server.embedded import NodeLog
from dledger.server.meta.at_leader import AtLeader
from dledger.server.meta.group_records import GroupEntry
from dledger.server.meta.lease_keeper import LeaderLeaseTimes
from dledger.testing.memory_network import MemoryNetwork
from tests.unit.group.rot import until

T = TypeVar("T")
PASSING = (
    Code.NOT_LEADER, Code.LEADER_NOT_READY, Code.NOT_HERE, Code.CHANGE_PENDING, Code.LEADER_TRANSFERRING,
    Code.TERM_CHANGED, Code.WAIT_QUORUM_ACK_TIMEOUT,
)  # fmt: skip
"""All that is asked here may be asked twice."""
TIMINGS = Timings(heartbeat_interval_ms=40, election_timeout_min_ms=250, election_timeout_max_ms=500)


class Cluster(OtherNodes):
    """``size`` machines n0, n1, …, all founders."""

    def __init__(self, directory: Path, size: int) -> None:
        self._directory = directory
        self._network = MemoryNetwork(Random(1))
        self.faults = self._network.faults
        self._founders = {f"n{at}": f"n{at}:1" for at in range(size)}
        self.nodes: dict[str, ClusterNode] = {}
        self.is_told = True
        """What leaders tell the directory gets there."""

    def data_dir(self, node_id: str) -> Path:
        return self._directory / node_id

    async def start(self, *node_ids: str) -> None:
        """Nodes that are no founders join."""
        for each in node_ids or self._founders:
            others = {peer: at for peer, at in self._founders.items() if each in self._founders or peer != each}
            config = NodeConfig(
                id=each, peers=others, address=f"{each}:1", data_dir=self.data_dir(each), timings=TIMINGS
            )
            transport = self._network.transport(NodeId(each))
            node = self.nodes[each] = ClusterNode(
                config, transport=transport, random=Random(each), others=self, at_leader=lambda _: InMemory(self)
            )
            await node.start()

    async def stop(self, *node_ids: str) -> None:
        for each in node_ids or tuple(self.nodes):
            await self.nodes.pop(each).stop()

    async def kill(self, node_id: str) -> None:
        """Nobody hears of it any more, and what it was doing ends."""
        self.nodes[node_id]._transport.crash()  # type: ignore[attr-defined]
        await self.stop(node_id)

    # What it is --------------------------------------------------------------------------------------------------

    def key_of(self, name: str) -> str:
        if name in (META_GROUP, DEFAULT_GROUP):
            return name
        keys = (node.groups.names[name] for node in self.nodes.values() if name in node.groups.names)
        return next(keys, name)

    def replica(self, node_id: str, name: str) -> Replica | None:
        return self.nodes[node_id].groups.replicas.get(self.key_of(name))

    def has(self, name: str, *node_ids: str) -> bool:
        """Whether exactly these nodes have a replica of the group."""
        return {each for each in self.nodes if self.replica(each, name) is not None} == set(node_ids)

    def members(self, name: str) -> tuple[list[str], list[str]]:
        """The voters and the learners, by the log of whoever leads."""
        leading = [node.groups.replicas.get(self.key_of(name)) for node in self.nodes.values()]
        for replica in leading:
            if replica is not None and replica.role is Role.LEADER:
                members = sorted(replica.log.state.members)
                return [each.id for each in members if each.voter], [each.id for each in members if not each.voter]
        return [], []

    def record(self, node_id: str, name: str) -> GroupEntry:
        """What this node has applied of the directory."""
        return self.nodes[node_id].directory.table.groups[name]

    def files(self, node_id: str, name: str) -> Path:
        return self.data_dir(node_id) / "groups" / self.key_of(name)

    # What is asked of it -----------------------------------------------------------------------------------------

    async def ask(self, ask: Callable[[ClusterNode], Awaitable[T]]) -> T:
        """Every node in turn, until one answers as the leader does. Raises a refusal that does not pass."""
        answers: list[T] = []

        async def answered() -> bool:
            for node in list(self.nodes.values()):
                try:
                    answers.append(await ask(node))
                except DLedgerError as refusal:
                    if refusal.code not in PASSING:
                        raise
                else:
                    return True
            return False

        await until_so(answered)
        return answers[0]

    async def create(self, name: str, *members: str) -> None:
        with suppress(GroupExists):  # an earlier attempt of this call made it
            await self.ask(lambda node: node.directory.create(name, [NodeId(each) for each in members]))
        await until(lambda: self.has(name, *(members or self._founders)))

    async def append(self, name: str, *records: bytes) -> None:
        await self.ask(lambda node: NodeLog(node, name).append_many(records))

    async def add(self, name: str, node_id: str) -> None:
        await self.ask(lambda node: node.replica(name).members.add(NodeId(node_id), f"{node_id}:1"))

    async def promote(self, name: str, node_id: str) -> None:
        await self._once_it_passes(lambda node: node.replica(name).members.promote(NodeId(node_id)))

    async def remove(self, name: str, node_id: str) -> None:
        await self._once_it_passes(lambda node: node.replica(name).members.remove(NodeId(node_id)))

    async def _once_it_passes(self, ask: Callable[[ClusterNode], Awaitable[object]]) -> None:
        """Also what the leader refuses for now."""

        async def done() -> bool:
            try:
                await self.ask(ask)
            except DLedgerError as refusal:
                if "waits_for" not in refusal.metadata:
                    raise
                return False
            return True

        await until_so(done)

    # The way between nodes (OtherNodes) --------------------------------------------------------------------------

    async def seal(self, addresses: Iterable[str], cluster_id: str, group: str) -> None:
        await self.ask(lambda node: node.replica(group).settings.seal())

    async def members_of_cluster(self, addresses: Iterable[str], cluster_id: str) -> dict[NodeId, str]:
        async def told(node: ClusterNode) -> dict[NodeId, str]:
            meta = node.directory.meta()
            meta.admission.check_leader()
            return {each.id: each.peer_address for each in meta.log.state.members}

        return await self.ask(told)


class InMemory(AtLeader):
    """The way to the node that leads `meta`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def append(self, records: Sequence[bytes]) -> int:
        return await self._ask(lambda leader: leader.append(records))

    async def read_index(self) -> int:
        return await self._ask(lambda leader: leader.read_index())

    async def keep_alive(self, lease_id: int) -> int:
        return await self._ask(lambda leader: leader.keep_alive(lease_id))

    async def lease_times(self, lease_id: int) -> LeaderLeaseTimes:
        return await self._ask(lambda leader: leader.lease_times(lease_id))

    async def _ask(self, call: Callable[[AtLeader], Awaitable[T]]) -> T:
        if not self._cluster.is_told:
            raise DLedgerError("cut off from the leader of meta", code=Code.NETWORK_ERROR)
        return await self._cluster.ask(lambda node: call(node.meta.here))


async def until_so(is_so: Callable[[], Awaitable[bool]], within_s: float = 10.0) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while not await is_so():  # noqa: ASYNC110 – what is waited for is many nodes' state
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(directory: Path, size: int = 3) -> AsyncIterator[Cluster]:
    """All founders run, and `default` is there on all of them."""
    cluster = Cluster(directory, size)
    await cluster.start()
    try:
        await until(lambda: cluster.has(DEFAULT_GROUP, *cluster.nodes))
        yield cluster
    finally:
        await cluster.stop()
