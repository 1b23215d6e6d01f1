"""The services, on a store without a log, behind a port of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from random import Random
from typing import NamedTuple

import grpc
import pytest

from dledger.etcdpb import election_pb2_grpc, kv_pb2, lock_pb2_grpc, rpc_pb2_grpc
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.rpc.server.server import GrpcServer
from dledger.server.etcd.services import add_etcd_services
from dledger.server.etcd.watch_here import watch_here
from dledger.store.keys import prefix_end
from tests.support.local_store import LocalBackend

PROGRESS_INTERVAL_S = 0.05
WITHIN_S = 10.0
UNLIMITED = (("grpc.max_receive_message_length", -1),)


class Served(NamedTuple):
    backend: LocalBackend
    channel: grpc.aio.Channel

    @property
    def kv(self) -> rpc_pb2_grpc.KVAsyncStub:
        return rpc_pb2_grpc.KVStub(self.channel)

    @property
    def watch(self) -> rpc_pb2_grpc.WatchAsyncStub:
        return rpc_pb2_grpc.WatchStub(self.channel)

    @property
    def lease(self) -> rpc_pb2_grpc.LeaseAsyncStub:
        return rpc_pb2_grpc.LeaseStub(self.channel)

    @property
    def lock(self) -> lock_pb2_grpc.LockAsyncStub:
        return lock_pb2_grpc.LockStub(self.channel)

    @property
    def election(self) -> election_pb2_grpc.ElectionAsyncStub:
        return election_pb2_grpc.ElectionStub(self.channel)

    @property
    def maintenance(self) -> rpc_pb2_grpc.MaintenanceAsyncStub:
        return rpc_pb2_grpc.MaintenanceStub(self.channel)

    async def keys(self, prefix: bytes, count: int) -> list[bytes]:
        """Once there are so many below the prefix."""
        store, end = self.backend.store, prefix_end(prefix)
        found = {each.key for each in store.range(rpc.RangeRequest(key=prefix, range_end=end)).kvs}
        start = store.pairs.revision + 1
        request = rpc.WatchCreateRequest(key=prefix, range_end=end, start_revision=start)
        async with asyncio.timeout(WITHIN_S), aclosing(watch_here(self.backend, [request])) as responses:
            while len(found) != count:
                for event in (await anext(responses)).events:
                    (found.discard if event.type == kv_pb2.Event.DELETE else found.add)(event.kv.key)
        return sorted(found)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    backend = LocalBackend()
    server = GrpcServer()
    add_etcd_services(backend, Random(1), server, progress_interval_s=PROGRESS_INTERVAL_S)
    port = await server.bind("127.0.0.1", 0)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED) as channel:
        yield Served(backend, channel)
    await server.stop(0)
    backend.close()
