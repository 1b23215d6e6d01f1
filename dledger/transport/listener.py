"""Accepts connections of nodes, also when strangers have taken all other files of the process.

The event loop's own server closes what it has no file for. This one accepts with the files kept back for the node
(common/open_files.py), so a returning member gets in.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from dledger.common.open_files import needed

logger = logging.getLogger(__name__)

BACKLOG = 128
FAILED_PAUSE_S = 0.1
"""Before the next look, when a connection could not be accepted."""


class Listener:
    """The listening sockets of one address."""

    def __init__(
        self,
        sockets: list[socket.socket],
        accept: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None,
        handshake_timeout_s: float,
    ) -> None:
        self.port = int(sockets[0].getsockname()[1])
        self._sockets = sockets
        self._accept = accept
        self._tls = tls
        self._handshake_timeout_s = handshake_timeout_s
        self._opening: dict[asyncio.Task[None], socket.socket] = {}
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        """When those are listened to again that could not accept."""
        self._loop = asyncio.get_running_loop()
        for each in sockets:
            self._listen(each)

    @classmethod
    async def bind(
        cls,
        host: str,
        port: int,
        accept: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None,
        handshake_timeout_s: float,
    ) -> Self:
        """Listens on all addresses of ``host``; port 0 picks a free one. Raises OSError."""
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        sockets: list[socket.socket] = []
        try:
            for family, *_, address in dict.fromkeys(found):
                sockets.append(_bound(family, address))
        except OSError:
            for each in sockets:
                each.close()
            raise
        return cls(sockets, accept, tls=tls, handshake_timeout_s=handshake_timeout_s)

    async def close(self) -> None:
        """Accepts no more. Connections that are open stay open."""
        for pause in self._pauses.values():
            pause.cancel()
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            self._loop.remove_reader(each)
        if self._tls is not None:
            for accepted in self._opening.values():
                with suppress(OSError):
                    accepted.shutdown(socket.SHUT_RDWR)  # no handshake is waited for
        # Not cancelled: after that, uvloop tells a protocol neither that it is made nor that it is lost.
        if self._opening:
            await asyncio.wait(self._opening)
        for each in sockets:
            each.close()

    def _listen(self, listening: socket.socket) -> None:
        self._pauses.pop(listening, None)
        self._loop.add_reader(listening, self._take, listening)

    def _take(self, listening: socket.socket) -> None:
        """A connection waits to be accepted."""
        try:
            accepted, _ = needed(listening.accept)
        except BlockingIOError:
            return  # it has gone away
        except OSError as reason:
            logger.debug("a connection was not accepted", extra={"why": reason})
            self._loop.remove_reader(listening)
            self._pauses[listening] = self._loop.call_later(FAILED_PAUSE_S, self._listen, listening)
            return
        task = self._loop.create_task(self._open(accepted), name=f"accepted-{self.port}")
        self._opening[task] = accepted
        task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        del self._opening[task]

    async def _open(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                self._accept,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_timeout_s if self._tls else None,
            )
        except OSError as reason:
            logger.debug("a connection was not opened", extra={"why": reason})  # the loop has closed it


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
