"""One TCP connection between two nodes, seen from its two ends: ``Outbound`` sends, ``Inbound`` receives.

::

    dialler                        acceptor
      Outbound ── hello ───────────▶ Inbound      judge_dial
               ◀── hello or refusal ──            judge_answer
               ── messages ─────────▶             codec.decode, TransportHandler.on_message

What is not a message of a node ends the connection with one log line; nothing is answered to it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, cast

from dledger.common.batch import Buffer
from dledger.common.errors import Code, DLedgerError, PeerRefused, error
from dledger.common.http2_refusal import HTTP2_BEGINNING, Http2Refusal, wrong_port
from dledger.common.limited_log import LimitedLog
from dledger.common.types import NodeId
from dledger.transport.codec import Codec
from dledger.transport.framing import MAX_HELLO_BYTES, MessageReader, RawMessage
from dledger.transport.hello import answer_hello, dial_hello, judge_answer, judge_dial
from dledger.transport.transport_api import HelloHandler, TransportHandler

M = TypeVar("M")

HELLO_TIMEOUT_S = 5.0
FLUSH_TIMEOUT_S = 1.0
DEAD_AFTER_MS = 3_000
"""A connection is closed when its peer acknowledges nothing for so long, so that a fresh one can be dialled. The
kernel's own patience, a quarter of an hour, would keep two healed halves of a network apart."""


class _Connection(asyncio.Protocol, ABC):
    """The part common to both ends: the transport, its options, and an end that is told once."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._reader = MessageReader(MAX_HELLO_BYTES)
        self._hello_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transports in all but their base class.
        self._transport = cast("asyncio.Transport", transport)
        _tune(transport.get_extra_info("socket"))
        loop = asyncio.get_running_loop()
        self._hello_timer = loop.call_later(HELLO_TIMEOUT_S, self._on_hello_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._hello_done()
        if not self.closed.done():
            self.closed.set_result(None)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def remote(self) -> str:
        """The other end's address, without the port, as strangers change theirs with every try."""
        peername = self._transport and self._transport.get_extra_info("peername")
        return str(peername[0]) if peername else "unknown"

    async def close(self) -> None:
        """Returns when the connection is closed. What is buffered is sent first, if the peer takes it soon enough."""
        if self._transport is not None:
            self._transport.close()
            await asyncio.wait([self.closed], timeout=FLUSH_TIMEOUT_S)
            self._transport.abort()
            await self.closed

    def abort(self) -> None:
        """Closes at once; what is buffered is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _hello_done(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()

    @abstractmethod
    def _on_hello_timeout(self) -> None: ...


class Inbound(_Connection, Generic[M]):
    """The accepting end: receives messages, and says nothing but its hello."""

    def __init__(
        self,
        handler: TransportHandler[M],
        codec: Codec[M],
        log: LimitedLog,
        *,
        max_message_bytes: int,
        on_made: Callable[[Inbound[M]], None],
        on_opened: Callable[[Inbound[M]], None],
        on_lost: Callable[[Inbound[M]], None],
    ) -> None:
        super().__init__()
        self.peer: NodeId | None = None
        """The peer that speaks; None until its hello was accepted."""
        self.received_messages = 0
        self.received_bytes = 0
        self._handler = handler
        self._codec = codec
        self._log = log
        self._max_message_bytes = max_message_bytes
        self._refusal: Http2Refusal | None = None
        """It is no node that speaks here."""
        self._on_made = on_made
        self._on_opened = on_opened
        self._on_lost = on_lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        if self._refusal is None and self.peer is None and data.startswith(HTTP2_BEGINNING):
            self._refusal = self._refuse_clients()
        if self._refusal is not None:
            self._answer_client(self._refusal, data)
            return
        for message in self._messages(data):
            assert self.peer is not None
            self.received_messages += 1
            self._handler.on_message(self.peer, message)

    def _messages(self, data: bytes) -> Iterator[M]:
        """Apart from ``data_received``, so that the peer is blamed for its own bytes only."""
        try:
            for raw in self._reader.feed(data):
                if not self.is_open:
                    return
                if self.peer is None:
                    self._on_hello(raw)
                else:
                    cluster_id = self._handler.local_identity().cluster_id
                    yield self._codec.decode(raw.header, raw.body, cluster_id=cluster_id, sender=self.peer)
        except DLedgerError as failure:
            self._blame(failure)
            self.abort()

    def _refuse_clients(self) -> Http2Refusal:
        """Of gRPC, which have taken the wrong one of this node's ports. They may stay as long as any stranger."""
        self._blame(error(Code.UNEXPECTED_ARGUMENT, "a client of gRPC on the port for nodes"))
        own = self._handler.local_identity()
        return Http2Refusal(wrong_port(own.node_id, "peer", own.client_address))

    def _answer_client(self, refusal: Http2Refusal, data: bytes) -> None:
        assert self._transport is not None
        try:
            self._transport.write(refusal.feed(data))
        except ValueError:
            self.abort()

    def _on_hello(self, raw: RawMessage) -> None:
        assert self._transport is not None
        try:
            identity = judge_dial(raw.header, self._handler)
        except PeerRefused as refusal:
            self._blame(refusal)
            self._transport.writelines(answer_hello(self._handler.local_identity(), refusal))
            self._transport.close()
            return
        self._hello_done()
        self.peer = identity.node_id
        self._reader.max_message_bytes = self._max_message_bytes
        self._transport.writelines(answer_hello(self._handler.local_identity()))
        self._on_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._reader.buffered_bytes:
            self._blame(error(Code.UNEXPECTED_ARGUMENT, "the connection ended in the middle of a message"))
        self._on_lost(self)

    def _on_hello_timeout(self) -> None:
        self._blame(error(Code.TIMEOUT, f"no hello within {HELLO_TIMEOUT_S:g} s"))
        self.abort()

    def _blame(self, failure: DLedgerError) -> None:
        now_s = asyncio.get_running_loop().time()
        who = self.peer or self.remote
        fields = {"peer": who, "remote": self.remote, "code": failure.code.name, "why": str(failure)}
        # Apart by code: noise from an address must not hide that a node there is refused, or why.
        key = f"{who} {failure.code.name}"
        self._log.say(logging.WARNING, key, now_s, "closed a connection from a peer", **fields)


class Outbound(_Connection):
    """The dialling end: sends messages, and hears nothing but the answer to its hello."""

    def __init__(self, peer: NodeId, handler: HelloHandler) -> None:
        super().__init__()
        self.peer = peer
        self.answered: asyncio.Future[DLedgerError | None] = asyncio.get_running_loop().create_future()
        """None when the peer accepted, otherwise why there is no connection."""
        self._handler = handler

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.write(dial_hello(self._handler.local_identity(), self.peer))

    def data_received(self, data: bytes) -> None:
        try:
            for raw in self._reader.feed(data):
                if self.answered.done():
                    raise error(Code.UNEXPECTED_ARGUMENT, f"{self.peer} sent more than its hello")
                judge_answer(raw.header, self._handler, self.peer)
                self._answer(None)
        except DLedgerError as failure:
            self._answer(failure)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        why = f": {exc}" if exc else ""
        self._answer(error(Code.NETWORK_ERROR, f"{self.peer} closed the connection before it answered{why}"))

    @property
    def is_accepted(self) -> bool:
        answered = self.answered
        return answered.done() and not answered.cancelled() and answered.result() is None

    @property
    def buffered_bytes(self) -> int:
        """What was written and the kernel has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Hands ``buffers`` to the kernel without copying them; they must not change any more."""
        assert self._transport is not None
        self._transport.writelines(buffers)

    def _answer(self, failure: DLedgerError | None) -> None:
        self._hello_done()
        if not self.answered.done():
            self.answered.set_result(failure)

    def _on_hello_timeout(self) -> None:
        self._answer(error(Code.TIMEOUT, f"{self.peer} did not answer the hello within {HELLO_TIMEOUT_S:g} s"))
        self.abort()


def _tune(sock: socket.socket) -> None:
    """Small messages leave at once, and a peer that vanished is noticed within seconds."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 1),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", DEAD_AFTER_MS),
    ):
        number = getattr(socket, option, None)
        if number is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)
