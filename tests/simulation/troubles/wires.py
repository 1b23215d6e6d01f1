"""The network: cuts of every shape, links that are slow, weather on all of them."""

from __future__ import annotations

from dledger.common.types import NodeId
from dledger.raft.messages import Message
from dledger.testing.network_faults import Rule
from tests.simulation.troubles.scene import Scene, Trouble


class NetworkTroubles:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._cluster = scene.cluster
        self._random = scene.random

    def all(self) -> list[Trouble]:
        return [
            Trouble(3, self.partition, fewest=2),
            Trouble(3, self.isolate_leader, fewest=2),
            Trouble(3, self.cut_one_way, fewest=2),
            Trouble(2, self.bridge, fewest=3),
            Trouble(1, self.ring, fewest=3),
            Trouble(10, self.heal, is_gentle=True),
            Trouble(4, self.weather),
            Trouble(2, self.slow_link, fewest=2),
            Trouble(4, self.calm, is_gentle=True),
            Trouble(3, self.disconnect, fewest=2),
        ]

    async def partition(self) -> None:
        ids = self._scene.ids()
        at = self._random.randrange(1, len(ids))
        self._cluster.network.faults.partition(ids[:at], ids[at:])
        self._scene.hit("partition", *ids[:at], "|", *ids[at:])

    async def isolate_leader(self) -> None:
        for host in self._scene.pick().leaders()[:1]:
            others = [other for other in self._cluster.hosts if other != host.id]
            self._cluster.network.faults.partition([host.id], others)
            self._scene.hit("leader isolated", host.name)

    async def cut_one_way(self) -> None:
        source, target = self._scene.ids()[:2]
        self._cluster.network.faults.cut(source, target)
        self._scene.hit("one-way cut", source, target)

    async def bridge(self) -> None:
        """One node alone reaches both halves."""
        ids = self._scene.ids()
        half = len(ids) // 2
        self._cluster.network.faults.partition(ids[1 : half + 1], ids[half + 1 :])
        self._scene.hit("bridge", *ids)

    async def ring(self) -> None:
        """Everybody reaches two neighbours, and no majority knows of each other."""
        ids = self._scene.ids()
        for at, a in enumerate(ids):
            for far in range(2, len(ids) - 1):
                self._cluster.network.faults.cut_both(a, ids[(at + far) % len(ids)])
        self._scene.hit("ring", *ids)

    async def heal(self) -> None:
        self._cluster.network.heal()

    async def weather(self) -> None:
        faults = self._cluster.network.faults
        faults.clear()
        share = self._random.choice((0.02, 0.1, 0.3))
        reorder_s = self._random.choice((0.01, 0.1, 1.0))
        echo_s = self._random.choice((0.0, 0.1, 2.0))
        faults.add(
            Rule(drop_share=share, duplicate_share=share, echo_s=echo_s, reorder_share=share, reorder_s=reorder_s)
        )
        self._cluster.trace.note("weather", share, reorder_s, echo_s)

    async def slow_link(self) -> None:
        source, target = self._scene.ids()[:2]

        def matches(a: NodeId, b: NodeId, _message: Message) -> bool:
            return (a, b) == (source, target)

        delay_s = self._random.choice((0.02, 0.1, 0.4))
        self._cluster.network.faults.add(Rule(matches, delay_s=delay_s))
        self._scene.hit("slow link", source, target, delay_s)

    async def calm(self) -> None:
        self._cluster.network.faults.clear()

    async def disconnect(self) -> None:
        a, b = self._scene.ids()[:2]
        self._cluster.network.disconnect(a, b)
        self._scene.hit("connection reset", a, b)
