"""Watches of a service's own, on this node's store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.etcd.backend import StoreBackend


async def watch_here(
    backend: StoreBackend, requests: Iterable[rpc.WatchCreateRequest]
) -> AsyncGenerator[rpc.WatchResponse, None]:
    """The responses that have events, and those that end a watch. Close it: a generator that was left alone still
    watches."""
    awake = asyncio.Event()
    stream = backend.watches.open(awake.set)
    try:
        for each in requests:
            stream.create(each)
        while True:
            awake.clear()
            while stream.is_ready:
                response = stream.next()
                if response is None:
                    await asyncio.sleep(0)  # a piece of the history had nothing for it: others have their turn
                elif response.events or response.canceled:
                    yield response
            await awake.wait()
    finally:
        stream.close()
