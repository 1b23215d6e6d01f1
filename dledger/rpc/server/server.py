"""A gRPC server on the event loop, in place of ``grpc.aio.server``: it takes the same handlers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from ssl import SSLContext
from typing import Any

from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.protocol import ALPN, Http2Protocol, agreed_on_http2
from dledger.rpc.server.connection import ServerConnection
from dledger.rpc.server.dispatch import MAX_MESSAGE_BYTES, Dispatch

logger = logging.getLogger(__name__)

BACKLOG = 1_024


class _Protocol(Http2Protocol[ServerConnection]):
    """One client's connection."""

    def __init__(self, server: GrpcServer) -> None:
        super().__init__()
        self._server = server

    def make_connection(self, transport: asyncio.Transport) -> ServerConnection:
        server = self._server
        server.connected(self)
        if not agreed_on_http2(transport):
            transport.abort()
        peer = _peer_of(transport.get_extra_info("peername"))
        return ServerConnection(server.limits, self.wants_flush, self.heard_s, server.dispatch, peer)

    def on_end(self, reason: str) -> None:
        self._server.disconnected(self)

    def go_away(self) -> None:
        self.connection.go_away()
        self.flush()

    def cut(self) -> None:
        """Ends every call at once."""
        self.connection.cancel_all()
        self.close()


class GrpcServer:
    def __init__(self, limits: Http2Limits | None = None, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.limits = limits or Http2Limits()
        self.dispatch = Dispatch(max_message_bytes)
        self._protocols: set[_Protocol] = set()
        self._server: asyncio.Server | None = None
        self._ended: asyncio.Future[None] | None = None

    # As of ``grpc.aio.Server`` -----------------------------------------------------------------------------------

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self.dispatch.add_generic(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        self.dispatch.add_methods(service, handlers)

    # Life --------------------------------------------------------------------------------------------------------

    async def bind(self, host: str | None, port: int, *, ssl: SSLContext | None = None) -> int:
        """Takes the port (0: any that is free), and returns it. Nobody is served yet. Raises OSError.

        ``ssl``: with the server's certificate; it is made to offer HTTP/2 by ALPN, which clients must ask for."""
        if ssl is not None:
            ssl.set_alpn_protocols([ALPN])
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Protocol(self), host, port, backlog=BACKLOG, start_serving=False, ssl=ssl
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def start(self) -> None:
        """Behind ``bind``."""
        assert self._server is not None
        await self._server.start_serving()

    async def stop(self, grace_s: float) -> None:
        """Takes no further calls, and gives those under way so long; then they end with CANCELLED."""
        if self._server is not None:
            self._server.close()
        for protocol in list(self._protocols):
            protocol.go_away()
        if self._protocols:
            ended = self._ended = asyncio.get_running_loop().create_future()
            await asyncio.wait([ended], timeout=grace_s)
            for protocol in list(self._protocols):
                protocol.cut()
            if not ended.done():
                await ended

    def connected(self, protocol: _Protocol) -> None:
        self._protocols.add(protocol)

    def disconnected(self, protocol: _Protocol) -> None:
        self._protocols.discard(protocol)
        if not self._protocols and self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


def _peer_of(address: Any) -> str:
    if not isinstance(address, tuple):
        return "unix:"
    host, port = address[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
