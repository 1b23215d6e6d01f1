"""A cluster of real nodes on simulated disks, clocks and wires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

from dledger.common.config import Limits, NodeConfig, Timings
from dledger.common.types import DEFAULT_GROUP, Durability, NodeId
from tests.simulation.debts import owes
from tests.simulation.groups import SimGroup
from tests.simulation.host import SimHost
from tests.simulation.life import Life
from tests.simulation.network import CountedFaults, SimNetwork
from tests.simulation.process import WorldLoop
from tests.simulation.seat import Seat
from tests.simulation.trace import Trace
from tests.simulation.violation import Violation
from tests.simulation.watch import Watch

LIMITS = Limits(
    segment_max_bytes=12 * 1024,  # small, so that logs roll, and disks that are full stop them, in most seeds
    segment_max_frames=90,
    tail_cache_bytes=8 * 1024,
    push_message_bytes=4 * 1024,
    read_message_bytes=4 * 1024,
    push_window_bytes=32 * 1024,
)
SCRUB_PERIOD_S = 6
"""Whatever rotted is found in time for the end of a seed."""
LEASE_SHARE = 0.35
"""Of the seeds: reads by lease, which rest on the clocks."""


class SimulatedCluster:
    """``size`` machines; nothing runs before ``start``. To be made inside a ``WorldLoop``."""

    def __init__(
        self,
        size: int,
        seed: int,
        trace: Trace,
        *,
        lease_reads: bool | None = None,
        durability: Durability = Durability.FSYNC,
    ) -> None:
        """``lease_reads``: as the seed will have it by default. Another ``durability`` survives the power loss of fewer
        than a majority of the voters at a time, and of no more."""
        world = asyncio.get_running_loop()
        assert isinstance(world, WorldLoop)
        self.world = world
        self.random = Random(seed)
        self.trace = trace
        trace.clock = world.time
        self.groups: dict[str, SimGroup] = {}
        """Every group there ever was, by name."""
        self.group(DEFAULT_GROUP)
        self.lease_reads = self.random.random() < LEASE_SHARE if lease_reads is None else lease_reads
        self.durability = durability
        self.timings = Timings(scrub_period_s=SCRUB_PERIOD_S)
        chance = Random(seed + 1)
        self.network = SimNetwork(chance, latency_s=0.0005, jitter_s=0.002, loop=world)
        self.network.faults = CountedFaults(chance, trace.hits)
        self.hosts: dict[NodeId, SimHost] = {}
        """Every machine there ever was, members or not."""
        self.id = ""
        """What the first committed frame that was looked at says."""
        self.lives: list[Life] = []
        self.on_leader: Callable[[Seat], None] = lambda _: None
        """Told of every new leader."""
        self.on_cut: Callable[[Seat], None] = lambda _: None
        """Told who is about to cut its log, or to begin it anew."""
        self.on_take: Callable[[Seat, NodeId], None] = lambda *_: None
        """Told whom a leader asks to take its place."""
        for _ in range(size):
            self.new_host()
        self.founding.wanted = set(self.hosts)
        peers = {str(host.id): host.address for host in self.hosts.values()}
        for host in self.hosts.values():
            host.peers = peers

    def new_host(self) -> SimHost:
        """A machine that nobody knows yet. No two clocks drift apart by more than leases allow for."""
        number = len(self.hosts)
        drift = 0.99 * self.timings.max_clock_drift / 2
        rate = self.random.choice((1.0, 1.0 - drift, 1.0 + drift, self.random.uniform(1.0 - drift, 1.0 + drift)))
        host = SimHost(self, NodeId(f"n{number}"), f"h{number}:{1000 + 10 * number}", rate)
        if rate != 1.0:
            self.trace.hit("fault clock drift", host.id, rate)
        self.hosts[host.id] = host
        return host

    def config_of(self, host: SimHost) -> NodeConfig:
        return NodeConfig(
            id=host.id,
            peers=host.peers,
            address=host.address,
            data_dir=Path(f"/data/{host.id}"),
            durability=self.durability,
            limits=LIMITS,
            timings=self.timings,
            lease_reads=self.lease_reads,
        )

    async def start(self) -> None:
        for host in self.hosts.values():
            await host.start()

    async def bury(self) -> None:
        """After the last step: what all lives have left is closed."""
        for host in self.up():
            host.crash()
        for life in self.lives:
            await life.process.bury()

    @property
    def is_synced(self) -> bool:
        """Whether what nodes acknowledge survives the loss of their power."""
        return self.durability is Durability.FSYNC

    # Groups ------------------------------------------------------------------------------------------------------

    def group(self, name: str) -> SimGroup:
        """Of that name; from now on there is one."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = SimGroup(self, name)
        return group

    @property
    def founding(self) -> SimGroup:
        return self.groups[DEFAULT_GROUP]

    @property
    def watch(self) -> Watch:
        """The founding group's judge."""
        return self.founding.watch

    @watch.setter
    def watch(self, watch: Watch) -> None:
        self.founding.watch = watch

    def leaders(self) -> list[SimHost]:
        """Of the founding group."""
        return [host for host in self.hosts.values() if host.leads]

    # Machines ----------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        return "\n".join(group.describe() for group in self.groups.values())

    def up(self) -> list[SimHost]:
        return [host for host in self.hosts.values() if host.is_up]

    def down(self) -> list[SimHost]:
        return [host for host in self.hosts.values() if host.is_down]

    def check(self) -> None:
        """What must hold between two steps."""
        for group in self.groups.values():
            for seat in group.up():
                group.watch.looked_at(seat.life, seat.life.process.time() * 1000)
                self._check_id(seat)
                if seat.is_owing and not owes(seat.host, group.name):
                    raise Violation("a debt is settled by its own group", f"{seat.name} owes, and its disk forgot it")

    def _check_id(self, seat: Seat) -> None:
        """All groups of all nodes are of one cluster, from their first committed frame on."""
        replica = seat.replica
        if not replica.core.commit_position:
            return
        cluster_id = replica.log.state.cluster_id
        self.id = self.id or cluster_id
        if cluster_id != self.id:
            raise Violation("one cluster id", f"{seat.name} is of {cluster_id!r}, others are of {self.id!r}")
