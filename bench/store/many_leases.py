"""Leases that expire at the same moment.

A new leader gives every lease its full time again, and an election timeout on top. So once the leadership has moved,
all leases are due at one moment, however long their grants took.
"""

from __future__ import annotations

import asyncio
import time

from bench.drivers.python_load import say
from dledger.client import connect_cluster
from dledger.client.store import Store
from dledger.common.types import META_GROUP

GRANT_INFLIGHT = 256
PREFIX = "leased/"


async def expire_together(endpoints: str, count: int, ttl_s: int) -> None:
    """Says ``granted`` and then ``gone``: seconds from the move of the leadership to the first and to the last key that
    went with its lease."""
    async with connect_cluster(endpoints) as cluster:
        store = cluster.store()
        began = time.monotonic()
        await _grant(store, count, ttl_s)
        say(event="granted", seconds=round(time.monotonic() - began, 2))
        watch = store.watch(prefix=PREFIX)
        await watch.started()
        moved = time.monotonic()
        await cluster.log(META_GROUP).admin.transfer_leadership()
        move_s = time.monotonic() - moved
        first_s = gone = 0.0
        async with watch:
            async for batch in watch:
                first_s = first_s or time.monotonic() - moved
                gone += sum(event.is_delete for event in batch)
                if gone >= count:
                    break
        last_s = time.monotonic() - moved
        say(
            event="gone",
            leases_left=len(await store.leases()),
            move_s=round(move_s, 3),
            first_s=round(first_s, 3),
            last_s=round(last_s, 3),
        )


async def _grant(store: Store, count: int, ttl_s: int) -> None:
    numbers = iter(range(count))

    async def grant_some() -> None:
        for number in numbers:
            lease = await store.grant_lease(ttl_s)
            await store.put(f"{PREFIX}{number:06}", "", lease=lease.id)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(GRANT_INFLIGHT, count)):
            tasks.create_task(grant_some())
