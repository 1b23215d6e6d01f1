"""A state machine on each node of a cluster in memory, with its keeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Self

from dledger.common.errors import Code, error
from dledger.group.replica import Replica
from dledger.statemachine.keeper import Keeper, KeeperOptions
from dledger.statemachine.local_log import LocalLog
from dledger.statemachine.runner import Runner
from tests.support.cluster import SimCluster, SimNode
from tests.unit.statemachine.memory import Counter

SOON = KeeperOptions(checkpoint_after_bytes=500, look_interval_s=0.05)
NEVER = KeeperOptions(checkpoint_after_bytes=1 << 40, look_interval_s=0.05)


class NodeMachine:
    def __init__(self, node: SimNode, options: KeeperOptions, make: Callable[[], Counter]) -> None:
        self.node = node
        self.runner = Runner(LocalLog(self._replica), make, random=Random(node.id), name=node.id, is_on_a_node=True)
        self.keeper = Keeper(self.runner, "counter", self._replica, options)
        self.tasks = [asyncio.create_task(work) for work in (self.runner.run(), self.keeper.run())]

    def _replica(self) -> Replica:
        if not self.node.is_up:
            raise error(Code.LEADER_NOT_READY, "it is down")
        return self.node.replica

    @property
    def value(self) -> int:
        return self.runner.machine.value

    @property
    def confirmed(self) -> int:
        return self.runner.checkpoints.confirmed_id

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()


class Machines:
    """``async with``: on every node of the cluster, which has started."""

    def __init__(
        self, cluster: SimCluster, options: KeeperOptions = SOON, make: Callable[[], Counter] = Counter
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._make = make
        self.of: dict[str, NodeMachine] = {}

    async def __aenter__(self) -> Self:
        for node in self._cluster.up():
            self.begin(node)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for machine in self.of.values() for task in machine.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, node: SimNode, make: Callable[[], Counter] | None = None) -> NodeMachine:
        """Anew, where it ran before."""
        if node.id in self.of:
            self.of[node.id].stop()
        machine = self.of[node.id] = NodeMachine(node, self._options, make or self._make)
        return machine

    async def leader(self) -> NodeMachine:
        """Once it serves."""
        node = await self._cluster.leader()
        await self._cluster.until(lambda: node.replica.machine.is_serving)
        return self.of[node.id]

    def others(self, leader: NodeMachine) -> list[NodeMachine]:
        return [machine for machine in self.of.values() if machine is not leader]

    async def count(self, times: int) -> None:
        leader = await self.leader()
        for _ in range(times):
            await leader.runner.submit(b"1")

    async def confirmed(self, behind: int = -1) -> int:
        """The id of a checkpoint behind ``behind`` that all nodes that are up know to be confirmed."""
        up = [machine for machine in self.of.values() if machine.node.is_up]
        await self._cluster.until(lambda: all(machine.confirmed > behind for machine in up))
        return min(machine.confirmed for machine in up)
