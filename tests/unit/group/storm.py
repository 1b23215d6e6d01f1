"""A storm over a cluster, and clients in it that remember what they were told."""

from __future__ import annotations

import asyncio
from random import Random

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import Consistency
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode

UNKNOWN = {Code.WAIT_QUORUM_ACK_TIMEOUT, Code.TERM_CHANGED}


class Journal:
    """What clients know: what was acknowledged and where, what surely failed, what may have happened."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.refused: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self.reads = 0

    def acknowledge(self, base_index: int, records: list[bytes]) -> None:
        for index, record in enumerate(records, base_index):
            known = self.acknowledged.setdefault(index, record)
            assert known == record, f"index {index} was acknowledged to {known!r} and {record!r}"

    @property
    def highest(self) -> int:
        return max(self.acknowledged, default=-1)

    def check(self, committed: list[bytes]) -> None:
        """Nothing acknowledged is lost or moved, nothing that failed is there, nothing is there twice."""
        for index, record in self.acknowledged.items():
            assert index < len(committed), f"record {index} was acknowledged and is lost"
            assert committed[index] == record, f"index {index} holds {committed[index]!r}, {record!r} was acknowledged"
        assert len(set(committed)) == len(committed), "a record is there twice"
        assert not self.refused.intersection(committed), "what was refused is there"
        assert set(committed) <= self.unknown.union(self.acknowledged.values()), "a record that nobody appended"


class Storm:
    def __init__(self, cluster: SimCluster, seed: int) -> None:
        self.cluster = cluster
        self.journal = Journal()
        self._random = Random(seed)
        self._numbers = iter(range(1_000_000))

    async def blow(self, duration_s: float) -> None:
        """Clients append and read all the while; faults come and go. Ends in calm weather."""
        async with asyncio.timeout(duration_s + 120), asyncio.TaskGroup() as tasks:
            ends_s = asyncio.get_running_loop().time() + duration_s
            for _ in range(3):
                tasks.create_task(self._append_until(ends_s))
            tasks.create_task(self._read_until(ends_s))
            tasks.create_task(self._trouble_until(ends_s))
        await self._calm()

    async def _calm(self) -> None:
        self.cluster.faults.clear()
        self.cluster.network.heal()
        for node in self.cluster.nodes.values():
            node.saver.delay_s = 0
            if not node.is_up:
                await node.start()
        await self.cluster.level(within_s=20)
        leader = await self.cluster.leader()
        self.cluster.check()
        self.journal.check(leader.committed())

    # Clients -----------------------------------------------------------------------------------------------------

    def _leading(self) -> list[SimNode]:
        """Those who think so; two at once now and then."""
        return [node for node in self.cluster.up() if node.leads]

    async def _append_until(self, ends_s: float) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while loop.time() < ends_s:
                for node in self._leading():
                    records = [b"%d" % next(self._numbers) for _ in range(self._random.choice((1, 1, 1, 5)))]
                    tasks.create_task(self._append(node, records))
                await asyncio.sleep(self._random.expovariate(1 / 0.03))

    async def _append(self, node: SimNode, records: list[bytes]) -> None:
        try:
            result = await node.append(*records)
        except DLedgerError as refusal:
            told = self.journal.unknown if refusal.code in UNKNOWN else self.journal.refused
            told.update(records)
        else:
            assert result.count == len(records)
            self.journal.acknowledge(result.base_index, records)

    async def _read_until(self, ends_s: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < ends_s:
            for node in self._leading():
                await self._read(node)
            await asyncio.sleep(self._random.expovariate(1 / 0.05))

    async def _read(self, node: SimNode) -> None:
        """A linearizable read shows all that was acknowledged before it began, whoever thinks that it leads."""
        acknowledged = self.journal.highest
        try:
            async with asyncio.timeout(2):
                point = await node.replica.reader.read_point(Consistency.LINEARIZABLE)
        except (DLedgerError, TimeoutError):
            return
        self.journal.reads += 1
        assert point.commit_index >= acknowledged, f"{node.id} read up to {point.commit_index}, not {acknowledged}"
        if acknowledged >= 0 and node.is_up:
            entry = await node.replica.reader.get(acknowledged, point)
            assert entry.value == self.journal.acknowledged[acknowledged]

    # Weather -----------------------------------------------------------------------------------------------------

    async def _trouble_until(self, ends_s: float) -> None:
        loop = asyncio.get_running_loop()
        troubles = [
            self._crash,
            self._crash,
            self._restart_all,
            self._partition,
            self._one_way,
            self._heal,
            self._weather,
            self._transfer,
            self._disconnect,
            self._slow_disk,
        ]
        while loop.time() < ends_s:
            await self._random.choice(troubles)()
            self.cluster.check()
            await asyncio.sleep(self._random.uniform(0.05, 1.5))

    def _some(self, nodes: list[SimNode]) -> SimNode:
        return self._random.choice(nodes)

    async def _crash(self) -> None:
        if up := self.cluster.up():
            self._some(up).crash()

    async def _restart_all(self) -> None:
        for node in self.cluster.nodes.values():
            if not node.is_up:
                await node.start()

    async def _partition(self) -> None:
        nodes = list(self.cluster.nodes)
        self._random.shuffle(nodes)
        at = self._random.randrange(1, len(nodes))
        self.cluster.faults.partition(nodes[:at], nodes[at:])

    async def _one_way(self) -> None:
        source, target = self._random.sample(list(self.cluster.nodes), 2)
        self.cluster.faults.cut(source, target)

    async def _heal(self) -> None:
        self.cluster.network.heal()

    async def _weather(self) -> None:
        self.cluster.faults.clear()
        share = self._random.choice((0.0, 0.05, 0.2))
        self.cluster.faults.add(
            Rule(drop_share=share, duplicate_share=share, reorder_share=share, reorder_s=self._random.choice((0.01, 1)))
        )

    async def _transfer(self) -> None:
        for node in self._leading():
            try:
                await node.replica.handover.transfer(None)
            except DLedgerError:
                continue  # refused or failed: either is an answer

    async def _disconnect(self) -> None:
        a, b = self._random.sample(list(self.cluster.nodes), 2)
        self.cluster.network.disconnect(a, b)

    async def _slow_disk(self) -> None:
        node = self._some(list(self.cluster.nodes.values()))
        node.saver.delay_s = self._random.choice((0, 0.001, 0.05))
