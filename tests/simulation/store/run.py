"""One seed of the store: its founding group is the store's, and all its clients are."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

from tests.simulation.clients import IsOver
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.groups import SimGroup
from tests.simulation.nemesis import Mix
from tests.simulation.run import Outcome, Seed, run_with
from tests.simulation.store.kv_client import KvClient
from tests.simulation.store.lease_client import LeaseClient
from tests.simulation.store.limits import small_limits
from tests.simulation.store.session_client import SessionClient
from tests.simulation.store.store_truth import StoreTruth
from tests.simulation.store.system_client import SystemClient
from tests.simulation.store.troubles import StoreTroubles
from tests.simulation.store.watch_client import WatchClient
from tests.simulation.trace import Trace
from tests.simulation.troubles.disks import DiskTroubles
from tests.simulation.troubles.groups import GroupTroubles
from tests.simulation.troubles.members import MemberTroubles
from tests.simulation.troubles.parting import PartingTroubles
from tests.simulation.troubles.tails import TailTroubles

SIZES = (1, 3, 3, 3, 3, 5, 5)

HISTORY_S = 12
"""After so long the leader compacts."""
MIX = Mix(
    2.0,
    {DiskTroubles: 0.25, MemberTroubles: 0.4, GroupTroubles: 0.25, TailTroubles: 0.25, PartingTroubles: 0.25},
    (StoreTroubles,),
)
"""The store is there most of the time, so that its clients and the leaders' deeds meet."""


def run_store_seed(seed: int, *, show: bool = False) -> Outcome:
    with small_limits():
        return run_with(_simulate, seed, show=show)


async def _simulate(seed: int, trace: Trace, outcome: Outcome) -> None:
    cluster = SimulatedCluster(Random(seed).choice(SIZES), seed, trace)
    cluster.timings = replace(cluster.timings, store_history_s=HISTORY_S)
    cluster.founding.give_machine(StoreTruth)
    try:
        await StoreSeed(seed, cluster, outcome).run()
    finally:
        outcome.digest = trace.digest
        await cluster.bury()


class StoreSeed(Seed):
    least_acknowledged = 500
    mix = MIX

    def begin_work(self, working: asyncio.TaskGroup, is_over: IsOver) -> None:
        group, seed = self._cluster.founding, self._seed
        clients: list[KvClient | LeaseClient | SessionClient | SystemClient] = [
            SystemClient(group, Random(seed + 5)),
            *(KvClient(f"c{at}", group, Random(seed + 10 + at)) for at in range(2)),
            *(SessionClient(f"s{at}", group, Random(seed + 20 + at)) for at in range(2)),
            *(LeaseClient(1_000 + at, group, Random(seed + 30 + at)) for at in range(4)),
        ]
        for client in clients:
            working.create_task(client.run(is_over), name=type(client).__name__)

    def begin_lasting(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        group = self._cluster.founding
        self._watching = [WatchClient(f"w{at}", group, Random(self._seed + 40 + at)) for at in range(3)]
        return [tasks.create_task(each.run(), name="watches") for each in self._watching]

    def is_at_rest(self) -> bool:
        """Every watch was told of all there is, and no lease is left that nobody keeps alive."""
        truth = self._cluster.founding.truth
        assert isinstance(truth, StoreTruth)
        return truth.leases.have_ended and all(each.is_level for each in self._watching)

    async def probe(self, group: SimGroup, limit_s: float) -> bool:
        world = self._cluster.world
        deadline_s = world.time() + limit_s
        client = KvClient(f"probe-{deadline_s:g}", group, Random(0))
        while not client.acknowledged and world.time() <= deadline_s:
            for seat in group.leaders():
                await client.put(seat, b"probe")
            await asyncio.sleep(0.05)
        return client.acknowledged > 0
