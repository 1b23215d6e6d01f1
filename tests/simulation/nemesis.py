"""Trouble, by weight: what goes wrong, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from dledger.errors import DLedgerError
from dledger.transport.faults import Rule
from dledger.types import NodeId
from tests.simulation.cluster import SimHost, SimulatedCluster

Trouble = Callable[[], Awaitable[None]]


class Nemesis:
    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._starts: list[asyncio.Task[None]] = []
        self._troubles: list[tuple[int, Trouble]] = [
            (4, self._power_cut),
            (1, self._power_cut_of_all),
            (2, self._kill),
            (8, self._restart),
            (2, self._clean_restart),
            (3, self._partition),
            (2, self._isolate_leader),
            (3, self._one_way),
            (2, self._bridge),
            (8, self._heal),
            (4, self._weather),
            (2, self._calm),
            (3, self._disconnect),
            (3, self._transfer),
            (3, self._slow_disk),
            (2, self._failing_sync),
            (2, self._full_disk),
            (2, self._hung_disk),
            (2, self._clock_jump),
        ]

    async def run(self, is_over: Callable[[], bool]) -> None:
        weights = [weight for weight, _ in self._troubles]
        while not is_over():
            (_, trouble) = self._random.choices(self._troubles, weights)[0]
            await trouble()
            await asyncio.sleep(self._random.uniform(0.05, 1.2))

    async def end(self) -> None:
        """Everything is whole again, and everybody is up."""
        cluster = self._cluster
        cluster.network.faults.clear()
        cluster.network.heal()
        for host in cluster.hosts.values():
            host.mood.sync_s = (0.0001, 0.002)
            host.mood.fails_next_sync = host.mood.is_hung = False
            host.platter.capacity_bytes = 1 << 30
        await asyncio.gather(*self._starts)
        for host in cluster.down():
            await host.start()

    def _hit(self, name: str, *details: object) -> None:
        self._cluster.trace.hit(f"fault {name}", *details)

    def _any(self) -> SimHost:
        return self._random.choice(list(self._cluster.hosts.values()))

    def _any_up(self) -> SimHost | None:
        up = self._cluster.up()
        return self._random.choice(up) if up else None

    # Processes and power -----------------------------------------------------------------------------------------

    async def _power_cut(self) -> None:
        if host := self._any_up():
            lost = host.platter.sectors_lost
            host.crash()
            self._hit("power cut", host.id)
            if host.platter.sectors_lost > lost:
                self._hit("sectors lost", host.id, host.platter.sectors_lost - lost)

    async def _power_cut_of_all(self) -> None:
        for host in self._cluster.up():
            host.crash()
        self._hit("power cut of all")

    async def _kill(self) -> None:
        if host := self._any_up():
            host.crash(power=False)
            self._hit("kill", host.id)

    async def _restart(self) -> None:
        for host in self._cluster.down():
            self._starts.append(asyncio.get_running_loop().create_task(host.start(), name=f"start {host.id}"))

    async def _clean_restart(self) -> None:
        if host := self._any_up():
            await host.stop()
            self._hit("clean stop", host.id)

    # The network -------------------------------------------------------------------------------------------------

    def _ids(self) -> list[NodeId]:
        ids = list(self._cluster.hosts)
        self._random.shuffle(ids)
        return ids

    async def _partition(self) -> None:
        ids = self._ids()
        at = self._random.randrange(1, len(ids))
        self._cluster.network.faults.partition(ids[:at], ids[at:])
        self._hit("partition", *ids[:at], "|", *ids[at:])

    async def _isolate_leader(self) -> None:
        for host in self._cluster.leaders()[:1]:
            others = [other for other in self._cluster.hosts if other != host.id]
            self._cluster.network.faults.partition([host.id], others)
            self._hit("leader isolated", host.id)

    async def _one_way(self) -> None:
        source, target = self._ids()[:2]
        self._cluster.network.faults.cut(source, target)
        self._hit("one-way cut", source, target)

    async def _bridge(self) -> None:
        ids = self._ids()
        half = len(ids) // 2
        self._cluster.network.faults.partition(ids[1 : half + 1], ids[half + 1 :])
        self._hit("bridge", *ids)

    async def _heal(self) -> None:
        self._cluster.network.heal()

    async def _weather(self) -> None:
        faults = self._cluster.network.faults
        faults.clear()
        share = self._random.choice((0.02, 0.1, 0.3))
        faults.add(
            Rule(drop_share=share, duplicate_share=share, reorder_share=share, reorder_s=self._random.choice((0.01, 1)))
        )
        self._hit("loss, duplication, reordering", share)

    async def _calm(self) -> None:
        self._cluster.network.faults.clear()

    async def _disconnect(self) -> None:
        a, b = self._ids()[:2]
        self._cluster.network.disconnect(a, b)
        self._hit("connection reset", a, b)

    # Leadership --------------------------------------------------------------------------------------------------

    async def _transfer(self) -> None:
        for host in self._cluster.leaders():
            try:
                async with asyncio.timeout(2):
                    await host.replica.handover.transfer(None)
            except (DLedgerError, TimeoutError):
                continue
            self._hit("transfer", host.id)

    # Disks and clocks --------------------------------------------------------------------------------------------

    async def _slow_disk(self) -> None:
        host = self._any()
        host.mood.sync_s = self._random.choice(((0.0001, 0.002), (0.005, 0.05), (0.0001, 0.3)))
        self._hit("slow disk", host.id, host.mood.sync_s)

    async def _failing_sync(self) -> None:
        if host := self._any_up():
            host.mood.fails_next_sync = True
            self._hit("failed fdatasync", host.id)

    async def _full_disk(self) -> None:
        host = self._any()
        full = host.platter.capacity_bytes > host.platter.used_bytes + 4096
        host.platter.capacity_bytes = host.platter.used_bytes if full else 1 << 30
        self._hit("full disk", host.id, full)

    async def _hung_disk(self) -> None:
        host = self._any()
        host.mood.is_hung = not host.mood.is_hung
        self._hit("hung disk", host.id, host.mood.is_hung)

    async def _clock_jump(self) -> None:
        host = self._any()
        host.clock_ahead_ms = self._random.choice((0, -3_600_000, 5, 3_600_000))
        self._hit("clock jump", host.id, host.clock_ahead_ms)
