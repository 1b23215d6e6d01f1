"""Real nodes on a real disk, with a network in memory: for what many groups of one node do to each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from dledger.common.config import NodeConfig, Timings
from dledger.common.types import DEFAULT_GROUP, Member, NodeId, Role
from dledger.node.identity import Identity
from dledger.node.node import Node
from dledger.testing.memory_network import MemoryNetwork
from tests.unit.group.rot import until

IDS = tuple(NodeId(f"n{at}") for at in range(3))
TIMINGS = Timings(heartbeat_interval_ms=20, election_timeout_min_ms=100, election_timeout_max_ms=200)


class Machines:
    """Three machines; a node may run on each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._network = MemoryNetwork(Random(1))
        self.nodes: dict[NodeId, Node] = {}

    def data_dir(self, node_id: NodeId) -> Path:
        return self._directory / node_id

    async def start(self, *node_ids: NodeId) -> None:
        for node_id in node_ids or IDS:
            config = NodeConfig(
                id=node_id,
                peers={each: f"{each}:1" for each in IDS},
                data_dir=self.data_dir(node_id),
                timings=TIMINGS,
            )
            node = self.nodes[node_id] = Node(config, transport=self._network.transport(node_id))
            await node.start()

    async def stop(self, *node_ids: NodeId) -> None:
        for node_id in node_ids or tuple(self.nodes):
            await self.nodes.pop(node_id).stop()

    async def kill(self, node_id: NodeId) -> None:
        """Nobody hears of it any more, and what it was doing ends."""
        self.nodes[node_id]._transport.crash()  # type: ignore[attr-defined]
        await self.nodes.pop(node_id).stop()

    def founders(self, *node_ids: NodeId) -> list[Member]:
        """As the record of a group names them: with the disks that they have now."""
        return [
            Member(each, f"{each}:1", True, start.node_uuid, start.start_count, start.start_nonces[-1])
            for each in node_ids or IDS
            if (start := self._identity(each).start)
        ]

    def _identity(self, node_id: NodeId) -> Identity:
        identity = self.nodes[node_id]._identity
        assert identity is not None
        return identity

    async def open_group(self, group: str, founders: Sequence[Member] | None = None) -> None:
        founders = self.founders() if founders is None else founders
        for node in self.nodes.values():
            await node.groups.open(group, founders)

    async def leader(self, group: str = DEFAULT_GROUP) -> Node:
        """Of the nodes that run; when it can serve."""

        def found() -> Node | None:
            ready = (
                node
                for node in self.nodes.values()
                if (replica := node.groups.replicas.get(group)) is not None
                and replica.role is Role.LEADER
                and replica.core.is_ready
            )
            return next(ready, None)

        await until(lambda: found() is not None)
        leader = found()
        assert leader is not None
        return leader

    async def append(self, group: str, *records: bytes) -> None:
        leader = await self.leader(group)
        await leader.replica(group).appender.append_records(records)

    def has_all(self, node_id: NodeId, group: str, count: int) -> bool:
        """Whether the node holds ``count`` records of the group, durably."""
        replica = self.nodes[node_id].groups.replicas.get(group)
        if replica is None:
            return False
        log = replica.log
        return log.state.next_index == count and log.durable_position == log.last.position


@asynccontextmanager
async def machines(directory: Path) -> AsyncIterator[Machines]:
    """All three run, and the cluster has its id."""
    running = Machines(directory)
    await running.start()
    try:
        await running.leader()
        await until(lambda: all(node.cluster_id for node in running.nodes.values()))
        yield running
    finally:
        await running.stop()
