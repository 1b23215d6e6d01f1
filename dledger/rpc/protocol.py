"""Between a transport and an HTTP/2 connection: what one turn of the loop has to send leaves with one write."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Generic, TypeVar, cast

from dledger.common.http2_frames import ErrorCode
from dledger.rpc.http2.connection import Http2Connection

logger = logging.getLogger(__name__)

ALPN = "h2"
"""HTTP/2, as the TLS handshake names it (RFC 9113, 3.2)."""
WRITES_A_TURN = 8
"""Of a connection: then others have their turn."""

AnyConnection = TypeVar("AnyConnection", bound=Http2Connection[Any])


class Http2Protocol(asyncio.Protocol, Generic[AnyConnection]):
    """Subclasses make the connection, and are told of its end."""

    connection: AnyConnection
    """From ``connection_made`` on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_flushing = False
        self._is_over = False
        self.heard_s = self._loop.time()
        """When something arrived last."""

    def make_connection(self, transport: asyncio.Transport) -> AnyConnection:
        raise NotImplementedError

    def on_end(self, reason: str) -> None:
        """The connection is gone; its streams were told."""

    def on_flushed(self, transport: asyncio.Transport) -> None:
        """The transport has all of the output."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        if self._is_over:
            made.abort()
            return
        self._transport = made
        sock = made.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = self.make_connection(made)

    def data_received(self, data: bytes) -> None:
        self._is_flushing = True  # everything this brings leaves with one write
        self.heard_s = now_s = self._loop.time()
        try:
            self.connection.receive(data, now_s)
            fault = self.connection.fault
            if fault is not None and fault.__cause__ is not None and fault.code is ErrorCode.INTERNAL_ERROR:
                logger.error("a connection ended in a bug", exc_info=fault.__cause__)
        finally:
            self._is_flushing = False
            self.flush()

    def wants_flush(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._is_flushing = False
        self.flush()

    def flush(self) -> None:
        """Writes the output there is, and closes a connection that has come to its end."""
        transport = self._transport
        connection = self.connection
        if transport is None or transport.is_closing():
            connection.take_output()  # it can go nowhere any more
            return
        self._is_flushing = True  # what the writes make room for leaves here too
        for _ in range(WRITES_A_TURN):
            out = connection.take_output()
            if not out or transport.is_closing():  # a write may find that the connection is lost
                break
            transport.write(out)
            connection.pump()
        self._is_flushing = False
        if connection.has_output:
            self.wants_flush()
        self.on_flushed(transport)
        if connection.fault is not None or (connection.is_going_away and not connection.streams):
            transport.close()

    def pause_writing(self) -> None:
        self.connection.set_paused(is_paused=True)

    def resume_writing(self) -> None:
        self.connection.set_paused(is_paused=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing happens when it was told before, or was not made yet: then it is closed as soon as it is."""
        self._is_over = True
        if self._transport is None:
            return
        self._transport = None
        fault = self.connection.fault
        reason = fault.reason if fault is not None else f"the connection was lost ({exc or 'the other side closed it'})"
        self.connection.end(ErrorCode.CANCEL, reason)
        self.on_end(reason)

    def close(self) -> None:
        """Behind what is still to be sent."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()


def agreed_on_http2(transport: asyncio.BaseTransport) -> bool:
    """Over TLS both sides say so in the handshake. Without TLS they know it beforehand."""
    tls = transport.get_extra_info("ssl_object")
    return tls is None or tls.selected_alpn_protocol() == ALPN
