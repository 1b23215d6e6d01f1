"""One client's connection to a server, from the transport's side."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from dledger.common.http2_frames import ConnectionFault, ErrorCode
from dledger.common.limited_log import LimitedLog
from dledger.rpc.http2.limits import Http2Limits
from dledger.rpc.protocol import Http2Protocol, agreed_on_http2
from dledger.rpc.server.connection import ServerConnection
from dledger.rpc.server.dispatch import Dispatch
from dledger.rpc.server.watch import Watch

logger = logging.getLogger(__name__)
_limited_log = LimitedLog(logger)

CLOSE_S = 5.0
"""So long a closed connection may take to send the rest."""
MAX_UNSENT_BYTES = 256 * 1024
"""Of output, for a client that does not read. Beyond it the server does not read either: requests bring answers."""


class Host(Protocol):
    """The server."""

    def connected(self, guest: Guest) -> None: ...

    def disconnected(self, guest: Guest) -> None: ...


class Guest(Http2Protocol[ServerConnection]):
    def __init__(self, limits: Http2Limits, dispatch: Dispatch, watch: Watch, host: Host) -> None:
        super().__init__()
        self._limits = limits
        self._dispatch = dispatch
        self._watch = watch
        self._host = host
        self._closing_s: float | None = None
        self._is_deaf = False
        self.file_number = -1
        self._peer = ""

    def make_connection(self, transport: asyncio.Transport) -> ServerConnection:
        if not agreed_on_http2(transport):
            transport.abort()
        self._peer = _peer_of(transport.get_extra_info("peername"))
        sock = transport.get_extra_info("socket")
        self.file_number = sock.fileno() if sock is not None else -1
        return ServerConnection(self._limits, self.wants_flush, self.heard_s, self._dispatch, self._peer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._host.connected(self)

    def on_end(self, reason: str) -> None:
        self._host.disconnected(self)

    @property
    def is_idle(self) -> bool:
        """It has no calls under way, and is not on its way out."""
        return not self.connection.has_streams and self.connection.fault is None

    # What a client does not read ---------------------------------------------------------------------------------

    def on_flushed(self, transport: asyncio.Transport) -> None:
        is_full = self.connection.is_paused and transport.get_write_buffer_size() > MAX_UNSENT_BYTES
        if is_full and not self._is_deaf and not transport.is_closing():
            self._is_deaf = True
            transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_deaf and self._transport is not None and not self._transport.is_closing():
            self._is_deaf = False
            self._transport.resume_reading()

    # The end -----------------------------------------------------------------------------------------------------

    def look(self, now_s: float) -> None:
        """Ends the connection if the client has stopped to go on."""
        transport = self._transport
        if transport is None:
            return
        if transport.is_closing():
            if self._closing_s is None:
                self._closing_s = now_s
            elif now_s >= self._closing_s + CLOSE_S:
                transport.abort()
            return
        fault = self._watch.look(self.connection, self.heard_s, now_s)
        if fault is not None:
            self.break_off(fault)

    def break_off(self, fault: ConnectionFault) -> None:
        _limited_log.say(
            logging.DEBUG, str(fault), self.heard_s, "a client is cut off", peer=self._peer, why=str(fault)
        )
        self.connection.break_off(fault)
        self.flush()

    def make_room(self, others: int) -> None:
        """The process has no place for it."""
        _limited_log.say(
            logging.WARNING,
            "no room",
            self._loop.time(),
            "clients have taken all connections that this process may have: the oldest idle ones are closed",
            connections=others,
            do="find out who connects to it, or raise the limit of open files",
        )
        text = f"this node has {others} connections, and no room for more"
        self.connection.break_off(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, text))
        self.flush()

    def go_away(self) -> None:
        self.connection.go_away()
        self.flush()

    def cut(self) -> None:
        """Ends every call at once."""
        self.connection.cancel_all()
        self.close()


def _peer_of(address: Any) -> str:
    if not isinstance(address, tuple):
        return "unix:"
    host, port = address[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
