"""``python -m tests.soak --clients 200``: clients connect, cancel and go, all the time, and no node grows.

Each client makes a connection, makes some calls on it, gives most of them up half-way, and goes: properly, or without a
word. After a third of the time, in which caches fill, the nodes' memory must stay what it is.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

from dledger.cli.cluster import LocalCluster
from dledger.client import connect
from dledger.rpc.client.channel import Channel
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.v1 import log_pb2
from jepsen.nemesis.api import happens

LOG_SERVICE = "/dledger.v1.LogService/"
STAYS_S = 1.0
"""A client's life, at most; and as long it is away."""
CALL_TIMEOUT_S = 10.0
MOST_CHANGE = 0.05
"""Of a node's memory, from the second third of the time to the last."""
LOOK_S = 1.0
FILLED_BYTES = 20_000_000
"""In the log before it begins: else what a reader gets at a time would grow as the log does."""


def limits_file(data: Path) -> Path:
    """What a node keeps of its log in memory is little: else it would still be filling at the end."""
    data.mkdir(parents=True, exist_ok=True)
    config = data / "limits.toml"
    config.write_text(f"[limits]\ntail_cache_bytes = {1 << 20}\n")
    return config


class Crowd:
    """The clients, and what became of their calls."""

    def __init__(self, addresses: list[str], seed: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._addresses = addresses
        self._random = random.Random(seed)

    async def come_and_go(self, ended: asyncio.Event) -> None:
        """One client after the other."""
        chance = self._random
        while not await happens(ended, chance.uniform(0, STAYS_S)):
            channel = Channel(chance.choice(self._addresses))
            calls = [asyncio.ensure_future(self._call(channel)) for _ in range(chance.randint(1, 5))]
            await happens(ended, chance.uniform(0, STAYS_S))
            if chance.random() < 0.3:
                await channel.close()  # with all that is under way
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            await channel.close()
            self.outcomes["clients"] += 1

    async def _call(self, channel: Channel) -> None:
        kind = self._random.choice((self._append, self._append, self._follow, self._stream, self._get))
        name = kind.__name__.strip("_")
        try:
            await kind(channel)
        except RpcFailure as failure:
            self.outcomes[f"{name}: {failure.status.name}"] += 1
        except asyncio.CancelledError:
            self.outcomes[f"{name}: cancelled"] += 1
            raise
        else:
            self.outcomes[f"{name}: OK"] += 1

    async def _append(self, channel: Channel) -> None:
        request = log_pb2.AppendRequest(records=[bytes(self._random.choice((10, 1_000, 10_000)))])
        await channel.unary_unary(f"{LOG_SERVICE}Append", _bytes_of)(request, timeout=CALL_TIMEOUT_S)

    async def _get(self, channel: Channel) -> None:
        request = log_pb2.GetRequest(index=0, consistency=log_pb2.CONSISTENCY_COMMITTED)
        await channel.unary_unary(f"{LOG_SERVICE}Get", _bytes_of)(request, timeout=CALL_TIMEOUT_S)

    async def _follow(self, channel: Channel) -> None:
        """From the beginning on: it takes a few answers, stands still for the rest, and never ends by itself."""
        request = log_pb2.ReadRequest(follow=True, consistency=log_pb2.CONSISTENCY_COMMITTED)
        call = channel.unary_stream(f"{LOG_SERVICE}Read", _bytes_of)(request)
        try:
            for _ in range(self._random.randint(0, 3)):
                await call.read()
            await asyncio.get_running_loop().create_future()
        finally:
            call.cancel()

    async def _stream(self, channel: Channel) -> None:
        """Gets, of which some are never read."""
        call = channel.stream_stream(f"{LOG_SERVICE}GetStream", _bytes_of)()
        try:
            for _ in range(self._random.randint(1, 20)):
                await call.write(log_pb2.GetStreamRequest(indexes=[0, 1], consistency=log_pb2.CONSISTENCY_COMMITTED))
            await call.read()
        finally:
            call.cancel()


def _bytes_of(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


class Memory:
    """Of each node, once a second."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._seen: dict[str, list[int]] = {node_id: [] for node_id in cluster.nodes}

    async def watch(self, ended: asyncio.Event) -> None:
        while not await happens(ended, LOOK_S):
            for node in self._cluster.nodes.values():
                assert node.process is not None
                pages = int(Path(f"/proc/{node.process.pid}/statm").read_text().split()[1])
                self._seen[node.id].append(pages * os.sysconf("SC_PAGE_SIZE"))

    def changes(self) -> dict[str, float]:
        """By which share of itself the last third of the time differs from the second, for each node."""
        return {node_id: _change(seen) for node_id, seen in self._seen.items()}

    def course_mib(self) -> dict[str, list[int]]:
        """At every tenth of the time."""
        return {
            node_id: [each >> 20 for each in seen[:: max(1, len(seen) // 10)]] for node_id, seen in self._seen.items()
        }


def _change(seen: list[int]) -> float:
    third = len(seen) // 3
    before, after = mean(seen[third : 2 * third]), mean(seen[2 * third :])
    return round((after - before) / before, 4)


async def soak_with_clients(cluster: LocalCluster, seconds: float, clients: int, seed: int) -> dict[str, Any]:
    """The whole run; returns what the JSON line says."""
    ended = asyncio.Event()
    await cluster.start()
    try:
        await cluster.wait_ready()
        async with connect(cluster.endpoints) as log:
            for _ in range(FILLED_BYTES // 1_000_000):
                await log.append_many([bytes(10_000)] * 100)
        crowd, memory = Crowd([node.client_address for node in cluster.nodes.values()], seed), Memory(cluster)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(memory.watch(ended), name="memory")
            for number in range(clients):
                tasks.create_task(crowd.come_and_go(ended), name=f"client-{number}")
            await asyncio.sleep(seconds)
            ended.set()
        words = [line for node in cluster.nodes.values() for line in node.log_file.read_text().splitlines()]
    finally:
        await cluster.stop()
    bugs = sum("Traceback" in line or " critical " in line for line in words)
    changes = memory.changes()
    return {
        "ok": not bugs and max(map(abs, changes.values())) <= MOST_CHANGE and crowd.outcomes["append: OK"] > 0,
        "memory_changes": changes,
        "memory_mib": memory.course_mib(),
        "bugs": bugs,
        "outcomes": dict(sorted(crowd.outcomes.items())),
        "seconds": seconds,
        "seed": seed,
    }
