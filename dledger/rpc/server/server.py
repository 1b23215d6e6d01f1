"""A gRPC server on the event loop, in place of ``grpc.aio.server``: it takes the same handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from ssl import SSLContext
from typing import Any

from dledger.common.futures import release
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.protocol import ALPN
from dledger.rpc.server.dispatch import MAX_MESSAGE_BYTES, Dispatch
from dledger.rpc.server.guest import CLOSE_S, Guest
from dledger.rpc.server.held import HeldLimits
from dledger.rpc.server.places import MAX_CONNECTIONS, are_files_short, who_makes_room
from dledger.rpc.server.watch import Timeouts, Watch

BACKLOG = 1_024
LOOK_S = 1.0
"""The server looks at its connections so often, for clients without progress."""


class GrpcServer:
    def __init__(
        self,
        limits: Http2Limits | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        held_limits: HeldLimits | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.limits = limits or Http2Limits()
        self.dispatch = Dispatch(max_message_bytes, held_limits)
        self._timeouts = timeouts or Timeouts()
        self._guests: dict[Guest, None] = {}
        """In the order in which they came."""
        self._server: asyncio.Server | None = None
        self._ended: asyncio.Future[None] | None = None
        self._clock: asyncio.TimerHandle | None = None

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
        self._server = await loop.create_server(self.guest, host, port, backlog=BACKLOG, start_serving=False, ssl=ssl)
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
        for guest in list(self._guests):
            guest.go_away()
        if self._guests:
            ended = self._ended = asyncio.get_running_loop().create_future()
            await asyncio.wait([ended], timeout=grace_s)
            for guest in list(self._guests):
                guest.cut()
            # Of a client that does not read, nothing leaves: it must not keep the server.
            await asyncio.wait([ended], timeout=CLOSE_S)
            for guest in list(self._guests):
                guest.abort()
            if not ended.done():
                await ended

    # Connections -------------------------------------------------------------------------------------------------

    def guest(self) -> Guest:
        return Guest(self.limits, self.dispatch, Watch(asyncio.get_running_loop().time(), self._timeouts), self)

    def connected(self, guest: Guest) -> None:
        self._guests[guest] = None
        if self._clock is None:
            self._set_clock()
        if len(self._guests) > MAX_CONNECTIONS or are_files_short(guest.file_number):
            who_makes_room(self._guests, guest).make_room(len(self._guests) - 1)

    def disconnected(self, guest: Guest) -> None:
        self._guests.pop(guest, None)
        if self._guests:
            return
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        release(self._ended)

    def _set_clock(self) -> None:
        self._clock = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """One timer for all connections."""
        self._set_clock()
        now_s = asyncio.get_running_loop().time()
        for guest in list(self._guests):
            guest.look(now_s)
        self.dispatch.held.turns.look()
