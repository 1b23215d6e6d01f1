"""``python -m tests.etcd.server``: our services on one store. It says its address, and ends with its standard input."""

from __future__ import annotations

import argparse
import asyncio
import sys
from random import Random
from typing import Any

from dledger.rpc.server.server import GrpcServer
from dledger.server.etcd.services import add_etcd_services
from dledger.server.store_service import StoreService
from dledger.v1 import store_service_pb2_grpc
from tests.support.local_store import LocalBackend

MAX_MESSAGE_BYTES = 16 << 20


async def serve(progress_interval_s: float) -> None:
    backend = LocalBackend()
    server = GrpcServer(max_message_bytes=MAX_MESSAGE_BYTES)
    registry: Any = server
    add_etcd_services(backend, Random(1), server, progress_interval_s=progress_interval_s)
    store_service_pb2_grpc.add_StoreServiceServicer_to_server(StoreService(backend), registry)
    backend.address = f"127.0.0.1:{await server.bind('127.0.0.1', 0)}"
    await server.start()
    sys.stdout.write(f"{backend.address}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--progress-interval", type=float, default=600.0, metavar="SECONDS")
    asyncio.run(serve(parser.parse_args().progress_interval))
