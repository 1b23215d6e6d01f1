"""Keeps one outbound connection to one peer: dials, says hello, and dials again, with patience that grows."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from random import Random

from dledger.common.config import split_address
from dledger.common.errors import PeerRefused
from dledger.common.limited_log import LimitedLog
from dledger.common.open_files import needed
from dledger.common.resolver import Resolver
from dledger.common.types import NodeId
from dledger.transport.connection import Outbound
from dledger.transport.transport_api import HelloHandler

logger = logging.getLogger(__name__)

BACK_OFF_FIRST_S = 0.05
BACK_OFF_MAX_S = 2.0
UNREACHED = "NETWORK_ERROR"
CONNECT_TIMEOUT_S = 2.0
"""To one address."""
LOOK_UP_PATIENCE_S = 15.0
"""For a name that was never looked up: a resolver goes on to the next nameserver after some seconds."""
KNOWN_PATIENCE_S = 2.0
"""The patience with a name that was looked up before: then the dialler uses the last answer."""


class BackOff:
    """50 ms, 100 ms … 2 s, each shortened at random by up to a half, so that nodes do not dial in step."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._tries = 0

    def next_s(self) -> float:
        longest_s = min(BACK_OFF_FIRST_S * 2.0**self._tries, BACK_OFF_MAX_S)
        self._tries = min(self._tries + 1, 16)
        return longest_s * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._tries = 0


class Dialer:
    """Owns the task that dials ``peer`` at ``address``. ``connection`` is the open one, or None."""

    def __init__(
        self,
        peer: NodeId,
        address: str,
        *,
        handler: HelloHandler,
        resolver: Resolver,
        random: Random,
        log: LimitedLog,
        tls: ssl.SSLContext | None,
        on_opened: Callable[[NodeId], None],
        on_lost: Callable[[NodeId], None],
        gathering_s: float,
    ) -> None:
        """For the first ``gathering_s``, that the peer cannot be reached is no warning."""
        self.peer = peer
        self.address = address
        self.connection: Outbound | None = None
        self.refusal: PeerRefused | None = None
        """The last time that either side turned the other away; None again once they are connected."""
        self._current: Outbound | None = None
        """The present connection, or the one being dialled, or the last one."""
        self._endpoint = split_address(address)
        self._handler = handler
        self._resolver = resolver
        self._log = log
        self._tls = tls
        self._on_opened = on_opened
        self._on_lost = on_lost
        self._back_off = BackOff(random)
        self._retry = asyncio.Event()
        self._last_told = (0, "")
        self._expected_by_s = asyncio.get_running_loop().time() + gathering_s
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"dial-{peer}")

    def retry_now(self) -> None:
        """The peer is known to be there: do not wait for the next try."""
        self._back_off.reset()
        self._retry.set()

    async def close(self) -> None:
        """Stops dialling and closes the connection, sending what is buffered. ``on_lost`` is not called."""
        self._task.cancel()
        await asyncio.wait([self._task])
        # One that was not accepted is aborted already, and uvloop never calls one lost if its making was cancelled.
        if self._current is not None and self._current.is_accepted:
            await self._current.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._retry.clear()
            connection = await self._dial()
            if connection is not None:
                opened_s = loop.time()
                await self._hold(connection)
                if loop.time() > opened_s + BACK_OFF_MAX_S:
                    self._back_off.reset()
            await self._wait()

    async def _dial(self) -> Outbound | None:
        """A connection after an accepted hello, or None. A new reason for a failure gives a log line."""
        why_not: tuple[str, str] | None = None
        for address in await self._addresses():
            connection = self._current = Outbound(self.peer, self._handler)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._connect(connection, address)
                failure = await connection.answered
            except TimeoutError:
                why_not = f"no answer within {CONNECT_TIMEOUT_S:g} s", UNREACHED
            except OSError as reason:
                why_not = _in_words(reason), UNREACHED
            else:
                if failure is None:
                    self.refusal = None
                    return connection
                if isinstance(failure, PeerRefused):
                    self.refusal = failure
                why_not = str(failure), failure.code.name
            finally:
                if not connection.is_accepted:
                    connection.abort()
        if why_not is not None:
            self._on_failure(*why_not)
        return None

    async def _connect(self, connection: Outbound, address: str) -> None:
        host, port = self._endpoint
        name = host if self._tls is not None else None  # the one that the peer's certificate has to name
        loop = asyncio.get_running_loop()
        [(family, *_, place), *_] = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
        opened = needed(lambda: socket.socket(family, socket.SOCK_STREAM))
        try:
            opened.setblocking(False)
            await loop.sock_connect(opened, place)
        except BaseException:
            opened.close()
            raise
        # From here on the loop closes it.
        await loop.create_connection(lambda: connection, sock=opened, ssl=self._tls, server_hostname=name)

    async def _addresses(self) -> Sequence[str]:
        """Of the peer; none, with a log line, when its name cannot be looked up now."""
        host, _ = self._endpoint
        try:
            patience_s = KNOWN_PATIENCE_S if self._resolver.knows(host) else LOOK_UP_PATIENCE_S
            return await self._resolver.resolve(host, patience_s)
        except TimeoutError:
            reason = f"no nameserver has told the address of {host} within {LOOK_UP_PATIENCE_S:g} s"
        except OSError as failure:
            reason = f"the address of {host} cannot be looked up: {_in_words(failure)}"
        self._on_failure(reason, UNREACHED)
        return ()

    async def _hold(self, connection: Outbound) -> None:
        """Returns when the connection closed."""
        if not connection.is_open:
            return
        self.connection = connection
        self._last_told = (0, "")
        self._say(logging.INFO, "connected to a peer")
        self._on_opened(self.peer)
        try:
            await asyncio.shield(connection.closed)
        finally:
            self.connection = None
        self._say(logging.INFO, "the connection to a peer closed")
        self._on_lost(self.peer)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._back_off.next_s()):
                await self._retry.wait()
        except TimeoutError:
            return

    def _on_failure(self, reason: str, code: str) -> None:
        is_early = code == UNREACHED and asyncio.get_running_loop().time() < self._expected_by_s
        level = logging.INFO if is_early else logging.WARNING
        if (level, reason) == self._last_told:
            return
        self._last_told = (level, reason)
        logger.log(
            level,
            "not connected to a peer yet" if is_early else "cannot connect to a peer",
            extra={"peer": self.peer, "address": self.address, "code": code, "why": reason},
        )

    def _say(self, level: int, event: str) -> None:
        now_s = asyncio.get_running_loop().time()
        self._log.say(level, f"{self.peer} {event}", now_s, event, peer=self.peer, address=self.address)


def _in_words(reason: OSError) -> str:
    """The reason in words that are the same on every event loop."""
    if isinstance(reason, ConnectionError) and reason.errno:
        return os.strerror(reason.errno)
    return reason.strerror or str(reason)
