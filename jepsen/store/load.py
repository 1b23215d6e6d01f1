"""The load of the store: clients of one workload, at every node, and reads of every copy at the end."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from dledger.common.types import META_GROUP
from jepsen.load import Worker
from jepsen.nemesis.api import World
from jepsen.plan import Plan
from jepsen.store.client import StoreClient
from jepsen.store.copies import read_copies
from jepsen.store.journal import Journal
from jepsen.store.kv import PREFIX, KvWorker
from jepsen.store.lists import ListWorker

KEYS_A_CLIENT = 0.7
"""So few that clients meet at them, so many that not every compare-and-set is in vain."""

LISTS_EVERY = 3
"""One client of so many works on lists."""


class StoreLoad:
    group = META_GROUP

    def __init__(self, plan: Plan, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        count = max(3, int(plan.clients * KEYS_A_CLIENT))
        self._keys = [f"{PREFIX}{number}" for number in range(count)]

    def recording(self, run_dir: Path) -> Journal:
        self._journal = Journal(run_dir)
        return self._journal

    def keep(self, run_dir: Path) -> None:
        """It is kept as it was written."""

    async def workers(self, world: World, stack: AsyncExitStack) -> Sequence[Worker]:
        return self.workers_at(nodes_of(world), stack)

    def workers_at(self, nodes: Mapping[str, str], stack: AsyncExitStack) -> list[Worker]:
        """``nodes``: addresses by name."""
        plan, names = self._plan, list(nodes)
        workers: list[Worker] = []
        for process in range(plan.clients):
            # Every other one goes round, the others are at home somewhere.
            home = names[process // 2 % len(names)] if process % 2 else None
            client = StoreClient(nodes, plan.call_timeout_ms / 1000, self._chance, home=home)
            stack.push_async_callback(client.close)
            rate = plan.rate_per_s / plan.clients
            own = random.Random(self._chance.getrandbits(64))
            if process % LISTS_EVERY == 0:
                workers.append(ListWorker(process, client, self._journal, own, rate_per_s=rate))
            else:
                workers.append(KvWorker(process, client, self._journal, own, keys=self._keys, rate_per_s=rate))
        return workers

    async def final_reads(self, world: World) -> None:
        told = {"copies": [host.name for host in world.hosts.all], "unrecovered": world.unrecovered}
        (world.run_dir / "end.json").write_text(json.dumps(told), encoding="utf-8")
        await self.read_copies(nodes_of(world))

    async def read_copies(self, nodes: Mapping[str, str]) -> None:
        """Of all these nodes. Raises NETWORK_ERROR."""
        await read_copies(nodes, self._keys, self._journal, self._plan.settle_s)


def nodes_of(world: World) -> dict[str, str]:
    """Their addresses for clients, by name."""
    return {host.name: world.hosts.client_address(host.name) for host in world.hosts.all}
