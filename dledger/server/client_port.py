"""A node's port for clients and for other nodes' calls: its services over gRPC, and its health."""

from __future__ import annotations

import asyncio
from typing import Self

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as grpc_health

from dledger.common.types import DEFAULT_GROUP, NodeId, Role, Term
from dledger.server.cluster_node import ClusterNode
from dledger.server.grpc_port import LOG_SERVICE, GrpcPort, bind_grpc

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

STOP_GRACE_S = 1.0


class ClientPort:
    """Made by ``take``. Nobody is served before ``open``."""

    def __init__(self, node: ClusterNode, port: GrpcPort, health: grpc_health.HealthServicer) -> None:
        self._node = node
        self._port = port
        self._health = health
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def take(cls, node: ClusterNode) -> Self:
        """Takes the port. Raises CONFIG_ERROR."""
        health = grpc_health.HealthServicer()
        return cls(node, await bind_grpc(node, health), health)

    async def open(self) -> None:
        """From now on clients are served. LogService is SERVING while a leader is known, for load balancers."""
        await self._port.start()
        await self._health.set("", _SERVING)
        await self._health.set(LOG_SERVICE, _NOT_SERVING)
        self._node.add_listener(self._on_role)
        groups = self._node.groups
        if groups.is_open(DEFAULT_GROUP):
            self._on_role(DEFAULT_GROUP, Role.FOLLOWER, Term(0), groups.present(DEFAULT_GROUP).leader_id)

    def _on_role(self, group: str, _role: Role, _term: Term, leader_id: NodeId) -> None:
        if group != DEFAULT_GROUP:
            return
        status = _SERVING if leader_id else _NOT_SERVING
        task = asyncio.get_running_loop().create_task(self._health.set(LOG_SERVICE, status), name="health")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Takes no further calls, and gives those under way ``STOP_GRACE_S``."""
        await self._health.enter_graceful_shutdown()
        await self._port.stop(STOP_GRACE_S)
