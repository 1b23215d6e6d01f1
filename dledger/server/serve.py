"""A node as a process: gRPC and /metrics in front, signals, health, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as grpc_health
from grpc_reflection.v1alpha import reflection

from dledger.common.config import MIB, NodeConfig, join_address
from dledger.common.errors import ConfigError
from dledger.common.http2_refusal import wrong_port
from dledger.common.open_files import keep_files_back
from dledger.common.types import DEFAULT_GROUP, NodeId, Role, Term
from dledger.metrics.collector import GroupCollector, make_registry
from dledger.metrics.server import start_metrics_server
from dledger.rpc.server.refusals import TypedRegistry
from dledger.server.admin_service import AdminService
from dledger.server.embedded import Node
from dledger.server.log_service import LogService
from dledger.server.log_service_wire import decode_append, encode_read
from dledger.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc

logger = logging.getLogger(__name__)

LOG_SERVICE = log_pb2.DESCRIPTOR.services_by_name["LogService"].full_name
ADMIN_SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

GRPC_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port in use must be an error, not a second listener
    ("grpc.max_receive_message_length", 16 * MIB),
    ("grpc.max_send_message_length", 32 * MIB),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)

STOP_GRACE_S = 1.0
SWITCH_INTERVAL_S = 0.001
"""So long at most the event loop waits for a thread that computes, as a scrape of many groups does for half a second;
the interpreter's own is five times as long, each time that the loop wants to go on."""


async def serve(config: NodeConfig, *, on_ready: Callable[[Node], None] | None = None) -> None:
    """Runs the node until SIGTERM or SIGINT, and stops it cleanly; a second signal ends the process at once.

    Raises what ``Node.start`` raises, CONFIG_ERROR for a port in use, and the failure that ended the node.
    """
    keep_files_back()
    _calm_grpc()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    stopping = asyncio.Event()
    with _signals(stopping):
        node = Node(config)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(node.stop)
            await node.open()
            # Every port is taken before it joins: a node that nobody can ask must not stand for election.
            health = grpc_health.HealthServicer()
            server = _bind_grpc(node, health)
            if config.metrics_port:
                registry = make_registry(GroupCollector(node.groups.metrics.values(), node.refresh_metrics))
                told = wrong_port(config.id, "metrics", config.client_address)
                metrics_server = start_metrics_server(
                    registry, config.listen_host, config.metrics_port, told_to_clients=told
                )
                stack.push_async_callback(metrics_server.close)
            await node.join()
            await server.start()
            stack.push_async_callback(_stop_grpc, server, health)
            # Clients that are told so move to the next leader; those whose streams are cut would have to look for one.
            stack.push_async_callback(node.leave)
            await _follow_health(node, health)
            _calm_collector()
            if on_ready is not None:
                on_ready(node)
            logger.info("serving", extra={"node": config.id, "address": config.client_address, "pid": os.getpid()})
            await _until_stopped(node, stopping)
            logger.info("stopping", extra={"node": config.id})


def _calm_grpc() -> None:
    """A client that goes away while it is being answered is a trace and an error to gRPC's own log: it is neither."""
    logging.getLogger("grpc._cython.cygrpc").addFilter(says_trouble)


def says_trouble(record: logging.LogRecord) -> bool:
    failure = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    return type(failure).__name__ != "ExecuteBatchError"


def _calm_collector() -> None:
    """What a node is made of stays: the collector need not look at it again."""
    gc.collect()
    gc.freeze()


async def _until_stopped(node: Node, stopping: asyncio.Event) -> None:
    """Returns on a signal; raises the failure that keeps the node from going on."""
    stop = asyncio.create_task(stopping.wait(), name="stop-signal")
    failed = asyncio.create_task(node.failed(), name="node-failed")
    done, pending = await asyncio.wait([stop, failed], return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if failed in done:
        raise failed.result()


@contextlib.contextmanager
def _signals(stopping: asyncio.Event) -> Iterator[None]:
    """The first SIGTERM, SIGINT or SIGHUP asks for a clean stop; the second does not wait for it. A node that was
    started to outlive its terminal, as by nohup, goes on ignoring SIGHUP."""
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _bind_grpc(node: Node, health: grpc_health.HealthServicer) -> grpc.aio.Server:
    config = node.config
    server = grpc.aio.server(options=GRPC_OPTIONS)
    registry: Any = TypedRegistry(server, {"AppendStream": decode_append}, {"Read": encode_read})
    log_pb2_grpc.add_LogServiceServicer_to_server(LogService(node), registry)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminService(node), registry)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    names = (LOG_SERVICE, ADMIN_SERVICE, "grpc.health.v1.Health", reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    address = join_address(config.listen_host, config.client_port)
    try:
        server.add_insecure_port(address)
    except RuntimeError as reason:
        raise ConfigError(f"cannot listen on {address}: {_why_not(config.listen_host)}") from reason
    return server


def _why_not(host: str) -> str:
    """gRPC does not say why it cannot listen there."""
    try:
        socket.getaddrinfo(host, None)
    except socket.gaierror as reason:
        return f"the name cannot be looked up ({reason.strerror}); give --listen an address of this machine"
    return "the port is in use, or the address is none of this machine's; choose another"


async def _stop_grpc(server: grpc.aio.Server, health: grpc_health.HealthServicer) -> None:
    await health.enter_graceful_shutdown()
    await server.stop(STOP_GRACE_S)


async def _follow_health(node: Node, health: grpc_health.HealthServicer) -> None:
    """LogService is SERVING while a leader is known: what a load balancer in front of the clients wants to know."""
    await health.set("", _SERVING)
    await health.set(LOG_SERVICE, _NOT_SERVING)
    tasks: set[asyncio.Task[None]] = set()

    def on_role(group: str, _role: Role, _term: Term, leader_id: NodeId) -> None:
        if group != DEFAULT_GROUP:
            return
        status = _SERVING if leader_id else _NOT_SERVING
        task = asyncio.get_running_loop().create_task(health.set(LOG_SERVICE, status), name="health")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    node.add_listener(on_role)
    if node.groups.has(DEFAULT_GROUP):
        on_role(DEFAULT_GROUP, Role.FOLLOWER, Term(0), NodeId(node.leader_id))
