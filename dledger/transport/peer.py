"""``TcpTransport``: one node's connections to all its peers, for any messages that its codec knows.

Each node dials every peer and sends over the connection it dialled; what it accepts is for receiving. A pair of nodes
thus has two connections, each with one direction, and neither side has to agree with the other on which to keep. The
framing is drawn in framing.py, the hello in hello.py, the two ends of a connection in connection.py.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Generic, NamedTuple, TypeVar

from dledger.common.batch import Buffer
from dledger.common.config import MIB, join_address
from dledger.common.errors import Code, PeerRefused, error
from dledger.common.limited_log import LimitedLog
from dledger.common.own_name import own_name_unknown
from dledger.common.resolver import Resolver
from dledger.common.types import NodeId
from dledger.transport.codec import Codec
from dledger.transport.connection import HELLO_TIMEOUT_S, Inbound, Outbound
from dledger.transport.dialer import Dialer
from dledger.transport.framing import pack
from dledger.transport.listener import Listener
from dledger.transport.transport_api import TransportHandler

logger = logging.getLogger(__name__)

M = TypeVar("M")

MAX_STRANGERS = 64
"""Accepted connections that have not said hello; with one more the oldest is closed. A member says hello at once, and
gets in however many strangers come and say nothing."""
MAX_MESSAGE_BYTES = 80 * MIB
"""The largest message between nodes is Raft's RESET. It carries the small state of as many producers as a log
remembers, each with all its ranges."""


class TlsContexts(NamedTuple):
    """Mutual TLS: ``server`` for connections accepted, ``client`` for those dialled. Both must verify their peer."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@dataclass(slots=True)
class PeerStats:
    """What was sent to one peer over all its connections."""

    sent_messages: int = 0
    sent_bytes: int = 0
    dropped_messages: int = 0
    """Messages not sent: the peer was not connected, or they were over ``max_buffer_bytes``."""


class _Packed(NamedTuple, Generic[M]):
    """A message as buffers: made once, and sent to every peer in turn."""

    message: M
    cluster_id: str
    buffers: list[Buffer]
    size_bytes: int


class TcpTransport(Generic[M]):
    """A ``Transport`` over TCP. ``host`` and ``port`` are bound by ``start``; port 0 picks a free one.

    ``max_buffer_bytes`` may wait for one peer's kernel; a message that would exceed it is dropped.
    ``max_message_bytes`` bounds the size of a message, accepted or sent. Nodes that start together need a moment: for
    ``gathering_s`` after a peer was first named, failing to reach it is no warning.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        codec: Codec[M],
        random: Random,
        tls: TlsContexts | None = None,
        resolver: Resolver | None = None,
        max_buffer_bytes: int = 96 * MIB,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        gathering_s: float = 0.0,
    ) -> None:
        if tls is not None and any(context.verify_mode is not ssl.CERT_REQUIRED for context in tls):
            raise error(
                Code.CONFIG_ERROR, "TLS between nodes is mutual: set verify_mode = CERT_REQUIRED on both contexts"
            )
        self.stats: dict[NodeId, PeerStats] = {}
        self._host = host
        self._port = port
        self._codec = codec
        self._random = random
        self._tls = tls
        self._max_buffer_bytes = max_buffer_bytes
        self._max_message_bytes = max_message_bytes
        self._log = LimitedLog(logger)
        self._resolver = resolver or Resolver()
        self._handler: TransportHandler[M] | None = None
        self._listener: Listener | None = None
        self._dialers: dict[NodeId, Dialer] = {}
        self._inbound: dict[NodeId, Inbound[M]] = {}
        self._accepted: set[Inbound[M]] = set()
        """All of them: strangers too, and those that were replaced and are not gone yet."""
        self._strangers: dict[Inbound[M], None] = {}
        """Accepted connections that have not said hello, the oldest first."""
        self._packed: _Packed[M] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._gathering_s = gathering_s

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._listener is not None, "start comes first"
        return self._listener.port

    async def check_port(self) -> None:
        """By taking it for a moment."""
        listener = await self._listen(asyncio.Protocol)
        await listener.close()

    async def start(self, handler: TransportHandler[M]) -> None:
        """Listens; dialling begins with ``set_peers``. Raises CONFIG_ERROR when the address cannot be bound."""
        assert self._listener is None, "a transport starts once"
        self._handler = handler
        self._listener = await self._listen(self._accept)

    async def _listen(self, accept: Callable[[], asyncio.BaseProtocol]) -> Listener:
        tls = self._tls.server if self._tls else None
        try:
            return await Listener.bind(self._host, self._port, accept, tls=tls, handshake_timeout_s=HELLO_TIMEOUT_S)
        except socket.gaierror as reason:
            raise own_name_unknown(f"for nodes on {join_address(self._host, self._port)}", reason) from reason
        except OSError as reason:
            raise error(
                Code.CONFIG_ERROR,
                f"cannot listen for nodes on {join_address(self._host, self._port)} ({reason.strerror or reason}): "
                "stop what uses that port, or give this node another address",
            ) from reason

    def set_peers(self, addresses: dict[NodeId, str]) -> None:
        """Dials these and no others: id → host:port. Raises CONFIG_ERROR for what is no address."""
        handler = self._started_handler()
        for peer, dialer in list(self._dialers.items()):
            if addresses.get(peer) != dialer.address:
                self._retire(self._dialers.pop(peer))
        for peer, inbound in list(self._inbound.items()):
            if peer not in addresses:
                inbound.abort()
        for peer, address in addresses.items():
            if peer not in self._dialers:
                self._dialers[peer] = Dialer(
                    peer,
                    address,
                    handler=handler,
                    resolver=self._resolver,
                    random=self._random,
                    log=self._log,
                    tls=self._tls.client if self._tls else None,
                    on_opened=handler.on_connected,
                    on_lost=self._on_outbound_lost,
                    gathering_s=self._gathering_s,
                )

    def send(self, peer: NodeId, message: M) -> bool:
        """Hands the message to the kernel, or to a bounded buffer in front of it; False when it was dropped."""
        stats = self._stats_of(peer)
        connection = self._connection_to(peer)
        if connection is None:
            stats.dropped_messages += 1
            return False
        packed = self._pack(message)
        if connection.buffered_bytes + packed.size_bytes > self._max_buffer_bytes:
            stats.dropped_messages += 1
            return False
        connection.write(packed.buffers)
        stats.sent_messages += 1
        stats.sent_bytes += packed.size_bytes
        return True

    def dropped_messages(self, peer: NodeId) -> int:
        stats = self.stats.get(peer)
        return stats.dropped_messages if stats is not None else 0

    def is_connected(self, peer: NodeId) -> bool:
        return self._connection_to(peer) is not None

    @property
    def refusals(self) -> dict[NodeId, PeerRefused]:
        """By the peers that are dialled now."""
        return {peer: dialer.refusal for peer, dialer in self._dialers.items() if dialer.refusal is not None}

    async def close(self) -> None:
        """Sends what is buffered, if the peers take it soon, and closes everything. The handler is not called again."""
        self._is_closing = True
        if self._listener is not None:
            await self._listener.close()
        dialers = [dialer.close() for dialer in self._dialers.values()]
        self._dialers.clear()
        await asyncio.gather(*dialers, *(inbound.close() for inbound in self._accepted), *self._tasks)

    # Sending. ------------------------------------------------------------------------------------------------------

    def _connection_to(self, peer: NodeId) -> Outbound | None:
        dialer = self._dialers.get(peer)
        if dialer is None or dialer.connection is None or not dialer.connection.is_open:
            return None
        return dialer.connection

    def _pack(self, message: M) -> _Packed[M]:
        handler = self._started_handler()
        identity = handler.local_identity()
        packed = self._packed
        if packed is None or packed.message is not message or packed.cluster_id != identity.cluster_id:
            encoded = self._codec.encode(message, cluster_id=identity.cluster_id, sender=identity.node_id)
            buffers = pack(encoded.header, encoded.body)
            packed = self._packed = _Packed(message, identity.cluster_id, buffers, sum(map(len, buffers)))
            assert packed.size_bytes <= self._max_message_bytes, f"{packed.size_bytes} bytes in one message"
        return packed

    def _stats_of(self, peer: NodeId) -> PeerStats:
        stats = self.stats.get(peer)
        if stats is None:
            stats = self.stats[peer] = PeerStats()
        return stats

    # Connections. --------------------------------------------------------------------------------------------------

    def _started_handler(self) -> TransportHandler[M]:
        assert self._handler is not None, "start comes first"
        return self._handler

    def _accept(self) -> Inbound[M]:
        return Inbound(
            self._started_handler(),
            self._codec,
            self._log,
            max_message_bytes=self._max_message_bytes,
            on_made=self._on_accepted,
            on_opened=self._on_inbound_opened,
            on_lost=self._on_inbound_lost,
        )

    def _on_accepted(self, inbound: Inbound[M]) -> None:
        self._accepted.add(inbound)
        if self._is_closing:
            inbound.abort()
            return
        self._strangers[inbound] = None
        if len(self._strangers) > MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()

    def _on_inbound_opened(self, inbound: Inbound[M]) -> None:
        assert inbound.peer is not None
        self._strangers.pop(inbound, None)
        logger.debug("a peer has connected", extra={"peer": inbound.peer})
        replaced = self._inbound.get(inbound.peer)
        self._inbound[inbound.peer] = inbound
        if replaced is not None:
            replaced.abort()
        dialer = self._dialers.get(inbound.peer)
        if dialer is not None:
            dialer.retry_now()

    def _on_inbound_lost(self, inbound: Inbound[M]) -> None:
        self._accepted.discard(inbound)
        self._strangers.pop(inbound, None)
        if inbound.peer is not None and self._inbound.get(inbound.peer) is inbound:
            logger.debug("a peer has gone", extra={"peer": inbound.peer})
            del self._inbound[inbound.peer]
            if not self._is_closing:
                self._started_handler().on_disconnected(inbound.peer)

    def _retire(self, dialer: Dialer) -> None:
        """Ends a dialer that is no longer wanted; the handler hears of it if an open connection ends with it."""
        loop = asyncio.get_running_loop()
        if dialer.connection is not None:
            loop.call_soon(self._on_outbound_lost, dialer.peer)
        task = loop.create_task(dialer.close(), name=f"close-{dialer.peer}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_outbound_lost(self, peer: NodeId) -> None:
        if not self._is_closing:
            self._started_handler().on_disconnected(peer)
