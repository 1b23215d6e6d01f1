"""Nodes on 127.0.0.1, and those who only pretend to be nodes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from random import Random
from typing import Self

from dledger.common.types import NodeId
from dledger.raft import codec
from dledger.raft.messages import Append, Heartbeat, PeerMessage
from dledger.transport.framing import PREFIX_BYTES, pack
from dledger.transport.hello import VERSION
from dledger.transport.peer import TcpTransport, TlsContexts
from dledger.transport.transport_api import PeerIdentity
from dledger.v1 import raft_pb2 as pb
from tests.unit.transport.recorder import Recorder

A, B = NodeId("a"), NodeId("b")
MIB = 1 << 20

CANNOT_CONNECT = "cannot connect to a peer"
CLOSED = "closed a connection from a peer"


class Nodes:
    """Transports on 127.0.0.1, closed at the end of the test."""

    def __init__(self) -> None:
        self.handlers: dict[NodeId, Recorder] = {}
        self.transports: dict[NodeId, TcpTransport[PeerMessage]] = {}

    async def start(
        self,
        node: NodeId,
        *,
        port: int = 0,
        judge: Callable[[PeerIdentity], None] | None = None,
        max_buffer_bytes: int = 64 * MIB,
        tls: TlsContexts | None = None,
    ) -> TcpTransport[PeerMessage]:
        self.handlers[node] = Recorder(node, judge=judge)
        transport = TcpTransport(
            "127.0.0.1", port, codec=codec, random=Random(1), max_buffer_bytes=max_buffer_bytes, tls=tls
        )
        await transport.start(self.handlers[node])
        self.transports[node] = transport
        return transport

    def address(self, node: NodeId) -> str:
        return f"127.0.0.1:{self.transports[node].port}"

    def dial(self, source: NodeId, *targets: NodeId) -> None:
        self.transports[source].set_peers({target: self.address(target) for target in targets})

    async def pair(self, tls: TlsContexts | None = None) -> tuple[TcpTransport[PeerMessage], TcpTransport[PeerMessage]]:
        """a and b, connected both ways."""
        a, b = await self.start(A, tls=tls), await self.start(B, tls=tls)
        self.dial(A, B)
        self.dial(B, A)
        await self.handlers[A].until(lambda: a.is_connected(B) and len(a._inbound) == 1)
        await self.handlers[B].until(lambda: b.is_connected(A) and len(b._inbound) == 1)
        return a, b

    async def until_rounds(self, node: NodeId, *expected: int) -> None:
        """Returns when these are the rounds of the heartbeats that ``node`` got."""
        await self.handlers[node].until(lambda: rounds(self.handlers[node]) == list(expected))

    async def close(self) -> None:
        for transport in self.transports.values():
            await transport.close()


def rounds(handler: Recorder) -> list[int]:
    return [message.round for _, message in handler.messages if isinstance(message, Heartbeat)]


def hello(node: NodeId, expected: NodeId, **fields: object) -> bytes:
    said = {"node_uuid": b"u", "start_count": 1, "start_nonces": [7]} | fields
    message = pb.Hello(version=VERSION, node_id=node, expected_node_id=expected)
    message.MergeFrom(pb.Hello(**said))  # type: ignore[arg-type]
    return b"".join(pack(message.SerializeToString()))


def wire(message: Append | Heartbeat, sender: NodeId, cluster_id: str = "c") -> bytes:
    encoded = codec.encode(message, cluster_id=cluster_id, sender=sender)
    return b"".join(pack(encoded.header, encoded.body))


class Stranger:
    """A plain TCP client of node a."""

    def __init__(self, address: tuple[str, int], first: bytes) -> None:
        self.address = address
        self.first = first
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(*self.address)
        self.writer.write(self.first)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        await asyncio.wait([asyncio.ensure_future(self.writer.wait_closed())])

    async def answer(self) -> pb.Hello:
        total_len, _, _ = struct.unpack("<III", await self.reader.readexactly(PREFIX_BYTES))
        return pb.Hello.FromString(await self.reader.readexactly(total_len - PREFIX_BYTES))

    async def rest(self) -> bytes:
        """All until the node closes the connection."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


def stranger(nodes: Nodes, first: bytes = b"") -> Stranger:
    return Stranger(("127.0.0.1", nodes.transports[A].port), first)


class FalsePeer:
    """Answers every connection with the same bytes, and then reads nothing any more."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.transports: list[asyncio.Transport] = []

    async def __aenter__(self) -> str:
        class Acceptor(asyncio.Protocol):
            def connection_made(_, transport: asyncio.Transport) -> None:  # type: ignore[override]  # noqa: N805
                self.transports.append(transport)
                transport.write(self.answer)
                transport.pause_reading()

        self.server = await asyncio.get_running_loop().create_server(Acceptor, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        for transport in self.transports:
            transport.abort()
        self.server.close()
        await self.server.wait_closed()
