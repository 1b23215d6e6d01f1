"""Nodes that serve one store: each a port of this process, and what is wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from dledger.common.errors import DLedgerError
from dledger.rpc.server.server import GrpcServer
from dledger.server.etcd.services import add_etcd_services
from dledger.server.store_service import StoreService
from dledger.v1 import store_service_pb2_grpc
from tests.support.local_store import LocalBackend

NEVER_S = 3_600.0


async def reached(condition: Callable[[], bool]) -> None:
    """Returns when it holds; for what nobody can be asked to tell of."""
    while not condition():  # noqa: ASYNC110  # there is no event
        await asyncio.sleep(0)


class TroubledBackend(LocalBackend):
    """A store whose submissions can be held, refused, or lose their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[int, int], Awaitable[None]] | None = None
        """Awaited with session and request before a submission is carried out; what it raises is its refusal."""
        self.behind: list[DLedgerError] = []
        """Raised, each once, behind submissions that were carried out."""
        self.refusals: list[DLedgerError] = []
        """Raised, each once, instead of carrying a submission out."""
        self.submitted: list[tuple[int, int]] = []
        """Session and request of every attempt."""
        self.most_unacknowledged = 0
        self._on_submitted = asyncio.Condition()

    async def until_submitted(self, count: int) -> None:
        """Returns when so many attempts have come."""
        async with self._on_submitted:
            await self._on_submitted.wait_for(lambda: len(self.submitted) >= count)

    async def submit_in_session(self, session: int, request: int, acknowledged: int, command: bytes) -> Any:
        self.submitted.append((session, request))
        async with self._on_submitted:
            self._on_submitted.notify_all()
        self.most_unacknowledged = max(self.most_unacknowledged, request - acknowledged)
        if self.before is not None:
            await self.before(session, request)
        if self.refusals:
            raise self.refusals.pop(0)
        answer = await super().submit_in_session(session, request, acknowledged, command)
        if self.behind:
            raise self.behind.pop(0)
        return answer


class StoreNode:
    def __init__(self, backend: LocalBackend) -> None:
        self._backend = backend
        self.address = ""
        self._server: GrpcServer | None = None

    async def start(self) -> None:
        """At the address that it had before, if it had one."""
        server = GrpcServer()
        registry: Any = server
        add_etcd_services(self._backend, Random(1), registry, progress_interval_s=NEVER_S)
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(StoreService(self._backend), registry)
        port = await server.bind("127.0.0.1", int(self.address.rpartition(":")[2] or 0))
        self.address = f"127.0.0.1:{port}"
        await server.start()
        self._server = server

    async def kill(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None


class StoreNodes:
    """Two of them."""

    def __init__(self) -> None:
        self.backend = TroubledBackend()
        self.nodes = [StoreNode(self.backend), StoreNode(self.backend)]

    async def start(self) -> None:
        await asyncio.gather(*(node.start() for node in self.nodes))

    async def stop(self) -> None:
        await asyncio.gather(*(node.kill() for node in self.nodes))
        self.backend.close()

    @property
    def endpoints(self) -> str:
        return ",".join(node.address for node in self.nodes)

    async def kill_each_in_turn(self) -> None:
        """So that whichever a client talks to is gone for a moment."""
        for node in self.nodes:
            await node.kill()
            await node.start()
