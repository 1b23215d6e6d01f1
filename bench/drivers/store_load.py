"""Puts through our SDK: ``store_load.py ENDPOINTS``. Each is of a new key, as in etcd's own client beside it."""

from __future__ import annotations

import os
import sys
from itertools import count

from bench.drivers.python_load import Call, serve_stdin
from dledger.cli.runtime import run
from dledger.client import connect_cluster
from dledger.common.memory import keep_freed_memory


async def load(endpoints: str) -> None:
    """Until stdin ends."""
    numbers = count()
    async with connect_cluster(endpoints) as cluster:
        store = cluster.store()

        def call_of(batch: int, size: int) -> Call:
            assert batch == 1, "a put has one key"
            value = os.urandom(size)
            return lambda: store.put(f"{next(numbers):016x}", value)

        await serve_stdin(call_of)


keep_freed_memory()
run(load(sys.argv[1]))
