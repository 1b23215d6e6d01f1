"""The services, on a store without a log, behind a port of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import NamedTuple

import grpc
import pytest

from dledger.etcdpb import rpc_pb2_grpc
from dledger.rpc.server.server import GrpcServer
from dledger.server.etcd.services import add_etcd_services
from tests.support.local_store import LocalBackend

PROGRESS_INTERVAL_S = 0.05
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
    def maintenance(self) -> rpc_pb2_grpc.MaintenanceAsyncStub:
        return rpc_pb2_grpc.MaintenanceStub(self.channel)


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
