"""The load of the store: clients of one workload, at every node, and reads of every copy at the end."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from dledger.common.types import META_GROUP
from jepsen.load import Worker
from jepsen.nemesis.api import World
from jepsen.plan import Plan
from jepsen.store import bundles, kv
from jepsen.store.bundles import BundleWorker
from jepsen.store.client import StoreClient
from jepsen.store.copies import read_copies
from jepsen.store.journal import Journal
from jepsen.store.kv import GETS_ALONE, KvWorker
from jepsen.store.leases import LeaseWorker
from jepsen.store.lists import ListWorker
from jepsen.store.locks import LockWorker
from jepsen.store.watchers import Compactor, Historian, Watcher

logger = logging.getLogger(__name__)

KEYS_A_CLIENT = 0.7
"""So few that clients meet at them, so many that not every compare-and-set is in vain."""
LISTS_EVERY = 3
"""One client of so many works on lists, or on bundles of keys."""
READERS = 100
WATCHERS = 200
HISTORIANS = 300
NEWCOMER = 399
COMPACTOR = 400
"""Process numbers; clients have those from 0 on."""
HISTORY = "history"
READS_PER_S = 20.0
"""Of each reader."""


class StoreLoad:
    group = META_GROUP

    def __init__(self, plan: Plan, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        has_keys = plan.workload in ("kv", "watch")
        count = max(3, int(plan.clients * KEYS_A_CLIENT)) if has_keys else 0
        self._keys = [f"{kv.PREFIX}{number}" for number in range(count)]
        self._historians: list[Historian] = []

    def recording(self, run_dir: Path) -> Journal:
        self._journal = Journal(run_dir)
        return self._journal

    def keep(self, run_dir: Path) -> None:
        """It is kept as it was written."""

    async def workers(self, world: World, stack: AsyncExitStack) -> Sequence[Worker]:
        return self.workers_at(nodes_of(world), stack)

    def workers_at(self, nodes: Mapping[str, str], stack: AsyncExitStack) -> list[Worker]:
        """``nodes``: addresses by name."""
        match self._plan.workload:
            case "kv":
                return self._kv(nodes, stack)
            case "watch":
                return self._watch(nodes, stack)
            case "lease":
                return [*self._each(LeaseWorker, nodes, stack), *self._history(nodes, stack)]
            case "lock":
                return [*self._each(LockWorker, nodes, stack), *self._history(nodes, stack)]
        raise AssertionError(self._plan.workload)

    def _kv(self, nodes: Mapping[str, str], stack: AsyncExitStack) -> list[Worker]:
        rate = self._plan.rate_per_s / self._plan.clients
        workers: list[Worker] = []
        for process in range(self._plan.clients):
            client, chance = self._client(process, nodes, stack), self._own_chance()
            if process % LISTS_EVERY == 0:
                workers.append(ListWorker(process, client, self._journal, chance, rate_per_s=rate))
            else:
                workers.append(KvWorker(process, client, self._journal, chance, keys=self._keys, rate_per_s=rate))
        return [*workers, *self._readers(nodes, stack)]

    def _readers(self, nodes: Mapping[str, str], stack: AsyncExitStack) -> Iterator[Worker]:
        """One that only reads, at each node: no write keeps it waiting while that node is cut off."""
        for number, node in enumerate(nodes):
            client = self._client(READERS, {node: nodes[node]}, stack)
            yield KvWorker(
                READERS + number,
                client,
                self._journal,
                self._own_chance(),
                keys=self._keys,
                rate_per_s=READS_PER_S,
                weights=GETS_ALONE,
            )

    def _watch(self, nodes: Mapping[str, str], stack: AsyncExitStack) -> list[Worker]:
        """As many watch as write."""
        rate = self._plan.rate_per_s / self._plan.clients
        workers: list[Worker] = []
        for process in range(self._plan.clients):
            client, chance = self._client(process, nodes, stack), self._own_chance()
            if process % LISTS_EVERY == 0:
                workers.append(BundleWorker(process, client, self._journal, chance, rate_per_s=rate))
            else:
                workers.append(KvWorker(process, client, self._journal, chance, keys=self._keys, rate_per_s=rate))
            watching = self._client(WATCHERS + process, nodes, stack)
            prefixes = (kv.PREFIX, bundles.PREFIX)
            workers.append(Watcher(WATCHERS + process, watching, self._journal, self._own_chance(), prefixes))
        historians = self._history(nodes, stack)
        compactor = Compactor(COMPACTOR, self._client(COMPACTOR, nodes, stack), self._journal, historians)
        return [*workers, *historians, compactor]

    def _history(self, nodes: Mapping[str, str], stack: AsyncExitStack) -> Sequence[Historian]:
        """A watch of all keys at each node."""
        self._historians = [
            Historian(HISTORIANS + number, self._client(HISTORIANS, {node: nodes[node]}, stack), self._journal, node)
            for number, node in enumerate(nodes)
        ]
        return self._historians

    def _each(
        self, kind: type[LeaseWorker | LockWorker], nodes: Mapping[str, str], stack: AsyncExitStack
    ) -> Iterator[Worker]:
        for process in range(self._plan.clients):
            yield kind(process, self._client(process, nodes, stack), self._journal, self._own_chance())

    def _client(self, process: int, nodes: Mapping[str, str], stack: AsyncExitStack) -> StoreClient:
        """Every other one goes round, the others are at home somewhere."""
        names = list(nodes)
        home = names[process // 2 % len(names)] if process % 2 else None
        client = StoreClient(nodes, self._plan.call_timeout_ms / 1000, self._chance, home=home)
        stack.push_async_callback(client.close)
        return client

    def _own_chance(self) -> random.Random:
        return random.Random(self._chance.getrandbits(64))

    async def final_reads(self, world: World) -> None:
        told = {"copies": [host.name for host in world.hosts.all], "unrecovered": world.unrecovered}
        (world.run_dir / "end.json").write_text(json.dumps(told), encoding="utf-8")
        await self.read_copies(nodes_of(world))

    async def read_copies(self, nodes: Mapping[str, str]) -> None:
        """Of all these nodes. Raises NETWORK_ERROR."""
        revision = await read_copies(nodes, self._keys, self._journal, self._plan.settle_s)
        if self._historians:
            for node in nodes:
                await self._end_history(node, nodes, revision)

    async def _end_history(self, node: str, nodes: Mapping[str, str], revision: int) -> None:
        """Also of a node that has joined meanwhile."""
        client = StoreClient(nodes, self._plan.call_timeout_ms / 1000, self._chance, home=node)
        mine = (each for each in self._historians if each.node == node)
        historian = next(mine, None) or Historian(NEWCOMER, client, self._journal, node)
        historian.client = client
        try:
            is_whole = await historian.go_on_to(revision, self._plan.settle_s)
        finally:
            await client.close()
        if is_whole:
            self._journal.note(HISTORY, node=historian.node, revision=revision)
        else:
            logger.warning("%s told of no more than revision %d", historian.node, historian.revision)


def nodes_of(world: World) -> dict[str, str]:
    """Their addresses for clients, by name."""
    return {host.name: world.hosts.client_address(host.name) for host in world.hosts.all}
