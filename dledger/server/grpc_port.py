"""The port for clients: the services of a node over gRPC, on the event loop (dledger/rpc), or by gRPC's own library.

``DLEDGER_GRPC=grpcio`` chooses the library, for this release.
"""

from __future__ import annotations

import logging
import os
import socket
from random import Random
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import aio as grpc_health
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from dledger.common.config import MIB, join_address
from dledger.common.errors import Code, ConfigError, error
from dledger.common.own_name import own_name_unknown
from dledger.rpc.server.refusals import TypedRegistry
from dledger.rpc.server.server import GrpcServer
from dledger.server.admin_service import AdminService
from dledger.server.cluster_node import ClusterNode
from dledger.server.etcd.services import SERVICE_NAMES, add_etcd_services
from dledger.server.log_service import LogService
from dledger.server.log_service_wire import decode_append, encode_read
from dledger.server.meta.meta_backend import MetaBackend
from dledger.server.meta.meta_service import MetaService
from dledger.server.store_service import STORE_SERVICE, StoreService
from dledger.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc, meta_pb2_grpc, store_service_pb2_grpc

LOG_SERVICE = log_pb2.DESCRIPTOR.services_by_name["LogService"].full_name
ADMIN_SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name

ENGINE_VARIABLE = "DLEDGER_GRPC"
MAX_REQUEST_BYTES = 16 * MIB
GRPC_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port in use must be an error, not a second listener
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", 32 * MIB),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)


class GrpcPort(Protocol):
    """A port that is taken. Nobody is served before ``start``."""

    async def start(self) -> None: ...

    async def stop(self, grace_s: float) -> None:
        """Takes no further calls, and ends those under way after so long."""


async def bind_grpc(node: ClusterNode, health: grpc_health.HealthServicer) -> GrpcPort:
    """Takes the port for clients. Raises ConfigError."""
    engine = os.environ.get(ENGINE_VARIABLE, "")
    if engine not in ("", "grpcio"):
        raise error(Code.CONFIG_ERROR, f"{ENGINE_VARIABLE}={engine}: set it to grpcio, or leave it out")
    host, port = node.config.listen_host, node.config.client_port
    try:
        if engine:
            return _library(node, health, host, port)
        server = GrpcServer(max_message_bytes=MAX_REQUEST_BYTES)
        _add_services(node, health, server)
        await server.bind(host, port)
    except socket.gaierror as reason:
        raise own_name_unknown(f"for clients on {join_address(host, port)}", reason) from reason
    except (OSError, RuntimeError) as reason:
        text = f"cannot listen on {join_address(host, port)} ({reason}): free that port, or choose another"
        raise ConfigError(text) from reason
    return server


def _library(node: ClusterNode, health: grpc_health.HealthServicer, host: str, port: int) -> GrpcPort:
    # A client that goes away while it is answered is a trace and an error to the library's own log. It is neither.
    logging.getLogger("grpc._cython.cygrpc").addFilter(says_trouble)
    server = grpc.aio.server(options=GRPC_OPTIONS)
    _add_services(node, health, server)
    server.add_insecure_port(join_address(host, port))
    return server


def says_trouble(record: logging.LogRecord) -> bool:
    failure = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    return type(failure).__name__ != "ExecuteBatchError"


def _add_services(node: ClusterNode, health: grpc_health.HealthServicer, server: Any) -> None:
    registry: Any = TypedRegistry(server, {"AppendStream": decode_append}, {"Read": encode_read})
    log_pb2_grpc.add_LogServiceServicer_to_server(LogService(node), registry)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminService(node), registry)
    meta_pb2_grpc.add_MetaServiceServicer_to_server(MetaService(node.meta.here, node.forwarder), registry)
    backend = MetaBackend(node, node.meta)
    store_service_pb2_grpc.add_StoreServiceServicer_to_server(StoreService(backend), registry)
    add_etcd_services(backend, Random(), registry)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    names = (
        LOG_SERVICE,
        ADMIN_SERVICE,
        STORE_SERVICE,
        *SERVICE_NAMES,
        "grpc.health.v1.Health",
        reflection.SERVICE_NAME,
    )
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), server)
