"""``dledger bench kv``: what the store of a cluster does per second."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.measure import duration_option, measure_calls, show
from dledger.cli.options import Target, cluster_options, option, output_option
from dledger.cli.runtime import run
from dledger.common.config import MIB
from dledger.common.memory import keep_freed_memory
from dledger.common.types import META_GROUP

if TYPE_CHECKING:
    from dledger.client.store import Store

MOST_CALLS = 10_000
"""The client of the store has no more changes under way (client/store/writer.py)."""
MOST_KEYS = 1_000_000
FILLERS = 256
PREFIX = "bench/"


@click.command()
@option("--inflight", env="INFLIGHT", default=64, type=click.IntRange(1, MOST_CALLS), help="Calls at a time.")
@option("--size", env="SIZE", default=128, type=click.IntRange(0, MIB), help="Bytes a value.")
@option("--gets", env="GETS", default=0, type=click.IntRange(0, 100),
        help="Percent of the calls that are gets; the others are puts.")  # fmt: skip
@option("--keys", env="KEYS", default=1_000, type=click.IntRange(1, MOST_KEYS), help="Keys that the calls go to.")
@duration_option
@output_option("table", "json")
@cluster_options
def kv(*, target: Target, inflight: int, size: int, gets: int, keys: int, duration: float, output: str) -> None:
    """Puts keys of the store, or gets them, linearizable, or both. The keys begin with bench/, and stay."""
    keep_freed_memory()
    show(run(_measured(target, inflight=inflight, size=size, gets=gets, keys=keys, duration_s=duration)), output)


async def _measured(
    target: Target, *, inflight: int, size: int, gets: int, keys: int, duration_s: float
) -> dict[str, Any]:
    value, chance = os.urandom(size), random.random
    async with target.connect_cluster() as cluster:
        store = cluster.store()
        await _fill(store, keys, value)
        status = await cluster.log(META_GROUP).status()
        leader = status.node(status.leader) if status.leader else None

        async def call() -> None:
            key = _key(int(chance() * keys))
            if chance() * 100 < gets:
                await store.get(key)
            else:
                await store.put(key, value)

        measured = await measure_calls(call, inflight=inflight, duration_s=duration_s, label="calling")
    measured.records = len(measured.latencies_s)
    measured.payload_bytes = measured.records * size
    measured.raise_if_nothing_worked()
    shape = {"inflight": inflight, "size_bytes": size, "batch": 1, "durability": leader.durability if leader else None}
    return {**measured.result(), **shape, "gets_percent": gets, "keys": keys}


async def _fill(store: Store, keys: int, value: bytes) -> None:
    """Each key has a value then, and the client has found the leader."""
    left: Iterator[int] = iter(range(keys))

    async def put_some() -> None:
        for number in left:
            await store.put(_key(number), value)

    await asyncio.gather(*(put_some() for _ in range(min(FILLERS, keys))))


def _key(number: int) -> str:
    return f"{PREFIX}{number:08}"
