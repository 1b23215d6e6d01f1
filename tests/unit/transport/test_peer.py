from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Self
from unittest.mock import Mock

import pytest

from dledger.batch import crc32c
from dledger.errors import Code, ConfigError, PeerRefused
from dledger.raft.messages import Append, Heartbeat
from dledger.transport import codec, connection, peer
from dledger.transport.api import PeerIdentity
from dledger.transport.dialer import BackOff
from dledger.transport.framing import PREFIX_BYTES, pack
from dledger.transport.hello import VERSION
from dledger.transport.peer import TcpTransport, TlsContexts
from dledger.types import NodeId
from dledger.v1 import raft_pb2 as pb
from tests.unit.transport.messages import append, frames_of, heartbeat
from tests.unit.transport.recorder import LogRecorder, Recorder

A, B = NodeId("a"), NodeId("b")
MIB = 1 << 20

CANNOT_CONNECT = "cannot connect to a peer"
CLOSED = "closed a connection from a peer"


class Nodes:
    """Transports on 127.0.0.1, closed at the end of the test."""

    def __init__(self) -> None:
        self.handlers: dict[NodeId, Recorder] = {}
        self.transports: dict[NodeId, TcpTransport] = {}

    async def start(
        self,
        node: NodeId,
        *,
        port: int = 0,
        judge: Callable[[PeerIdentity], None] | None = None,
        max_buffer_bytes: int = 64 * MIB,
        tls: TlsContexts | None = None,
    ) -> TcpTransport:
        self.handlers[node] = Recorder(node, judge=judge)
        transport = TcpTransport("127.0.0.1", port, random=Random(1), max_buffer_bytes=max_buffer_bytes, tls=tls)
        await transport.start(self.handlers[node])
        self.transports[node] = transport
        return transport

    def address(self, node: NodeId) -> str:
        return f"127.0.0.1:{self.transports[node].port}"

    def dial(self, source: NodeId, *targets: NodeId) -> None:
        self.transports[source].set_peers({target: self.address(target) for target in targets})

    async def pair(self, tls: TlsContexts | None = None) -> tuple[TcpTransport, TcpTransport]:
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


@pytest.fixture
async def log() -> AsyncIterator[LogRecorder]:
    with LogRecorder("dledger.transport") as recorder:
        yield recorder


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes()
    yield made
    await made.close()


def rounds(handler: Recorder) -> list[int]:
    return [message.round for _, message in handler.messages if isinstance(message, Heartbeat)]


# Messages. ---------------------------------------------------------------------------------------------------------


async def test_messages_arrive_in_order_each_way(nodes: Nodes) -> None:
    a, b = await nodes.pair()
    assert [a.send(B, heartbeat(i)) for i in range(100)] == [True] * 100
    assert b.send(A, heartbeat(7))
    await nodes.handlers[B].until(lambda: len(nodes.handlers[B].messages) == 100)
    await nodes.handlers[A].until(lambda: len(nodes.handlers[A].messages) == 1)
    assert rounds(nodes.handlers[B]) == list(range(100))
    assert nodes.handlers[A].messages == [(B, heartbeat(7))]


async def test_frames_arrive_byte_for_byte_whatever_their_size(nodes: Nodes) -> None:
    a, _ = await nodes.pair()
    sent = append([b""], [b"x"], [bytes(range(256)) * 12_000], [b"y" * 100] * 50)
    a.send(B, sent)
    a.send(B, heartbeat(1))
    await nodes.handlers[B].until(lambda: len(nodes.handlers[B].messages) == 2)
    received = nodes.handlers[B].messages[0][1]
    assert isinstance(received, Append)
    assert [frame.raw for frame in received.frames] == [frame.raw for frame in sent.frames]


async def test_a_message_for_several_peers_is_encoded_once(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    c = NodeId("c")
    a, _, _ = [await nodes.start(node) for node in (A, B, c)]
    nodes.dial(A, B, c)
    await nodes.handlers[A].until(lambda: a.is_connected(B) and a.is_connected(c))
    encode = Mock(side_effect=codec.encode)
    monkeypatch.setattr(codec, "encode", encode)
    message = heartbeat(5)
    assert a.send(B, message)
    assert a.send(c, message)
    await nodes.until_rounds(B, 5)
    await nodes.until_rounds(c, 5)
    assert encode.call_count == 1


async def test_nothing_is_sent_to_a_peer_that_is_not_connected(nodes: Nodes) -> None:
    a = await nodes.start(A)
    assert not a.send(B, heartbeat())
    assert a.stats[B].dropped_messages == 1


async def test_over_its_buffer_a_peer_gets_nothing_more_and_the_drops_are_counted(nodes: Nodes) -> None:
    a = await nodes.start(A, max_buffer_bytes=4 * MIB)
    async with FalsePeer(hello(B, NodeId(""))) as address:
        a.set_peers({B: address})
        await nodes.handlers[A].until(lambda: a.is_connected(B))
        message = append([bytes(MIB - 1000)])
        sent = [a.send(B, message) for _ in range(50)]
        assert sent.count(False) == a.stats[B].dropped_messages
        assert 0 < a.stats[B].dropped_messages < 50
        assert a.is_connected(B)


# Coming and going. -------------------------------------------------------------------------------------------------


async def test_both_sides_are_told_once_a_direction_when_a_node_closes(nodes: Nodes) -> None:
    a, b = await nodes.pair()
    handler = nodes.handlers[A]
    await b.close()
    await handler.until(lambda: len(handler.disconnected) == 2)
    await handler.until(lambda: not a.is_connected(B))
    assert handler.disconnected == [B, B]
    assert nodes.handlers[B].disconnected == []


async def test_what_was_sent_before_a_close_arrives(nodes: Nodes) -> None:
    a, _ = await nodes.pair()
    a.send(B, append([bytes(3 * MIB)]))
    a.send(B, heartbeat(9))
    await a.close()
    await nodes.until_rounds(B, 9)


async def test_a_peer_that_comes_back_is_connected_again(nodes: Nodes) -> None:
    a, b = await nodes.pair()
    port = b.port
    await b.close()
    await nodes.handlers[A].until(lambda: not a.is_connected(B))
    await nodes.start(B, port=port)
    await nodes.handlers[A].until(lambda: nodes.handlers[A].connected == [B, B])
    assert a.send(B, heartbeat(3))
    await nodes.until_rounds(B, 3)


async def test_an_inbound_connection_makes_the_dial_back_immediate(
    nodes: Nodes, log: LogRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.transport.dialer.BACK_OFF_FIRST_S", 1_000.0)
    monkeypatch.setattr("dledger.transport.dialer.BACK_OFF_MAX_S", 1_000.0)
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    a = await nodes.start(A)
    a.set_peers({B: f"127.0.0.1:{port}"})
    await log.until(CANNOT_CONNECT)
    await nodes.start(B, port=port)
    assert not a.is_connected(B)
    nodes.dial(B, A)
    await nodes.handlers[A].until(lambda: a.is_connected(B))


async def test_a_peer_taken_from_the_list_is_disconnected_both_ways(nodes: Nodes) -> None:
    a, b = await nodes.pair()
    a.set_peers({})
    assert not a.send(B, heartbeat())
    await nodes.handlers[A].until(lambda: nodes.handlers[A].disconnected == [B, B])
    await nodes.handlers[B].until(lambda: len(nodes.handlers[B].disconnected) >= 1)
    assert not a.is_connected(B)
    assert b.port


async def test_a_peer_at_a_new_address_is_dialled_there(nodes: Nodes) -> None:
    a, b = await nodes.pair()
    await b.close()
    await nodes.start(B)
    nodes.dial(A, B)
    await nodes.handlers[A].until(lambda: nodes.handlers[A].connected == [B, B])
    assert a.send(B, heartbeat(1))
    await nodes.until_rounds(B, 1)


async def test_a_second_connection_of_a_peer_replaces_the_first_silently(nodes: Nodes) -> None:
    await nodes.start(A)
    async with stranger(nodes, hello(B, A)) as first, stranger(nodes, hello(B, A)) as second:
        await first.answer()
        await second.answer()
        assert await first.rest() == b""
        second.writer.write(wire(heartbeat(4), B))
        await nodes.until_rounds(A, 4)
    await nodes.handlers[A].until(lambda: nodes.handlers[A].disconnected == [B])


async def test_a_port_in_use_is_a_config_error(nodes: Nodes) -> None:
    a = await nodes.start(A)
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{a.port}.*in use"):
        await TcpTransport("127.0.0.1", a.port, random=Random(1)).start(Recorder(B))


async def test_no_task_and_no_connection_is_left_after_a_close(nodes: Nodes) -> None:
    a, b = await nodes.pair()
    a.set_peers({B: "127.0.0.1:1"})
    await a.close()
    await b.close()
    mine = asyncio.current_task()
    assert [task for task in asyncio.all_tasks() if task is not mine and task.get_name().startswith("dial")] == []


async def test_a_failing_dial_is_logged_once_a_reason_and_not_once_a_try(
    nodes: Nodes, log: LogRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_s = Mock(return_value=0.0)
    monkeypatch.setattr(BackOff, "next_s", next_s)
    a = await nodes.start(A)
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    a.set_peers({B: f"127.0.0.1:{port}"})
    await log.until(CANNOT_CONNECT)
    async with asyncio.timeout(10):
        while next_s.call_count < 5:  # noqa: ASYNC110 (the dialer's own tries are what passes)
            await asyncio.sleep(0)
    assert [line["why"] for line in log.of(CANNOT_CONNECT)] == ["Connection refused"]
    await nodes.start(B, port=port, judge=Mock(side_effect=PeerRefused("no")))
    assert (await log.until(CANNOT_CONNECT, 2))["why"] == "b refused: no"


# Hellos. -----------------------------------------------------------------------------------------------------------


def hello(node: NodeId, expected: NodeId, **fields: object) -> bytes:
    message = {"version": VERSION, "node_id": node, "node_uuid": b"u", "expected_node_id": expected} | fields
    return b"".join(pack(pb.Hello(**message).SerializeToString()))  # type: ignore[arg-type]


def wire(message: Append | Heartbeat, sender: NodeId, cluster_id: str = "c") -> bytes:
    encoded = codec.encode(message, cluster_id=cluster_id, sender=sender)
    return b"".join(pack(encoded.header, encoded.frames))


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


async def test_both_sides_judge_the_others_hello(nodes: Nodes) -> None:
    await nodes.pair()
    seen = [identity for handler in nodes.handlers.values() for identity in handler.hellos]
    assert sorted({identity.node_id for identity in seen}) == [A, B]
    assert nodes.handlers[A].hellos[0] == nodes.handlers[B].local_identity()


async def test_an_acceptors_refusal_reaches_the_dialler_in_words(nodes: Nodes, log: LogRecorder) -> None:
    def judge(identity: PeerIdentity) -> None:
        raise PeerRefused(f"{identity.node_id} is of cluster x", code=Code.UNKNOWN_CLUSTER)

    a = await nodes.start(A)
    await nodes.start(B, judge=judge)
    nodes.dial(A, B)
    line = await log.until(CANNOT_CONNECT)
    assert (line["code"], line["why"]) == ("UNKNOWN_CLUSTER", "b refused: a is of cluster x")
    assert not a.is_connected(B)


async def test_a_dialler_turns_away_an_acceptor_it_does_not_accept(nodes: Nodes, log: LogRecorder) -> None:
    a = await nodes.start(A, judge=Mock(side_effect=PeerRefused("b is an impostor")))
    await nodes.start(B)
    nodes.dial(A, B)
    assert (await log.until(CANNOT_CONNECT))["why"] == "b is an impostor"
    assert not a.is_connected(B)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (hello(B, A, version=VERSION + 1), Code.UNSUPPORTED_VERSION),
        (hello(B, NodeId("z")), Code.UNEXPECTED_MEMBER),
    ],
)
async def test_a_hello_that_does_not_fit_is_answered_with_the_reason_and_closed(
    nodes: Nodes, first: bytes, reason: Code
) -> None:
    await nodes.start(A)
    async with stranger(nodes, first) as dialler:
        answer = await dialler.answer()
        assert answer.refusal_reason == reason.name
        assert answer.refusal_message
        assert await dialler.rest() == b""


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (hello(NodeId("z"), NodeId("")), "UNEXPECTED_MEMBER"),
        (hello(B, NodeId(""), version=VERSION + 1), "UNSUPPORTED_VERSION"),
        (hello(B, NodeId(""), refusal_reason="FROM_THE_FUTURE", refusal_message="no"), "UNEXPECTED_MEMBER"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "UNEXPECTED_ARGUMENT"),
    ],
)
async def test_an_answer_that_does_not_fit_is_not_connected_to(
    nodes: Nodes, log: LogRecorder, answer: bytes, code: str
) -> None:
    a = await nodes.start(A)
    async with FalsePeer(answer) as address:
        a.set_peers({B: address})
        assert (await log.until(CANNOT_CONNECT))["code"] == code
        await a.close()
    assert nodes.handlers[A].connected == []


async def test_a_connection_without_a_hello_is_closed_in_time(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HELLO_TIMEOUT_S", 0.05)
    await nodes.start(A)
    async with stranger(nodes) as silent:
        assert await silent.rest() == b""


async def test_strangers_beyond_the_limit_are_closed_at_once(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "MAX_STRANGERS", 1)
    await nodes.start(A)
    async with stranger(nodes) as first:
        async with stranger(nodes) as second:
            assert await second.rest() == b""
        first.writer.write(hello(B, A))
        assert (await first.answer()).node_id == A


# What is no message of a node. -------------------------------------------------------------------------------------


def flipped(data: bytes, offset: int) -> bytes:
    copy = bytearray(data)
    copy[offset] ^= 1
    return bytes(copy)


GOOD = wire(append([b"12345678"]), B)
UNKNOWN_KIND = b"".join(pack(pb.PeerMessage(kind=99, group="default").SerializeToString()))  # type: ignore[arg-type]

BEFORE_THE_HELLO = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("1603010200010001fc0303") + bytes(500),
    "noise": Random(3).randbytes(10_000),
    "zeros": bytes(100),
    "too long": struct.pack("<III", 1 << 31, 10, 0),
    "no protobuf": struct.pack("<III", 15, 3, crc32c(b"\xff\xff\xff")) + b"\xff\xff\xff",
    "an id no node has": hello(NodeId("b\n"), A),
    "no uuid": hello(B, A, node_uuid=b""),
}
AFTER_THE_HELLO = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "too long": struct.pack("<III", 1 << 31, 10, 0),
    "a header with a flipped bit": flipped(GOOD, PREFIX_BYTES + 3),
    "a frame with a flipped bit": flipped(GOOD, len(GOOD) - 1),
    "an unknown kind": UNKNOWN_KIND,
    "another cluster's": wire(heartbeat(), B, cluster_id="other"),
    "another leader's": wire(heartbeat(), NodeId("z")),
    "another hello": hello(B, A),
}


@pytest.mark.parametrize("garbage", BEFORE_THE_HELLO.values(), ids=BEFORE_THE_HELLO)
async def test_garbage_before_the_hello_is_closed_with_one_line(nodes: Nodes, log: LogRecorder, garbage: bytes) -> None:
    await nodes.start(A)
    async with stranger(nodes, garbage) as noise:
        assert await noise.rest() == b""
    assert len(log.of(CLOSED)) == 1
    assert "\n" not in str(log.of(CLOSED)[0]["why"])
    async with stranger(nodes, hello(B, A)) as sane:
        assert (await sane.answer()).node_id == A


@pytest.mark.parametrize("garbage", AFTER_THE_HELLO.values(), ids=AFTER_THE_HELLO)
async def test_garbage_after_the_hello_is_closed_with_one_line_and_what_came_before_counts(
    nodes: Nodes, log: LogRecorder, garbage: bytes
) -> None:
    await nodes.start(A)
    handler = nodes.handlers[A]
    async with stranger(nodes, hello(B, A)) as broken:
        await broken.answer()
        broken.writer.write(wire(heartbeat(1), B) + garbage + wire(heartbeat(2), B))
        assert await broken.rest() == b""
    await handler.until(lambda: handler.disconnected == [B])
    assert rounds(handler) == [1]
    assert len(log.of(CLOSED)) == 1


async def test_a_message_cut_short_by_the_end_is_told(nodes: Nodes, log: LogRecorder) -> None:
    await nodes.start(A)
    async with stranger(nodes, hello(B, A)) as broken:
        await broken.answer()
        broken.writer.write(GOOD[:-5])
    await nodes.handlers[A].until(lambda: nodes.handlers[A].disconnected == [B])
    assert "in the middle of a message" in str(log.of(CLOSED)[0]["why"])


async def test_a_peer_that_sends_garbage_over_and_over_is_logged_once(nodes: Nodes, log: LogRecorder) -> None:
    await nodes.start(A)
    for _ in range(20):
        async with stranger(nodes, b"GET / HTTP/1.1\r\n\r\n") as noise:
            await noise.rest()
    assert len(log.of(CLOSED)) == 1


async def test_frames_of_a_partial_message_are_kept_no_longer_than_needed(nodes: Nodes) -> None:
    await nodes.start(A)
    whole = wire(Append("default", append().term, append().commit_position, frames_of([bytes(MIB)])), B)
    async with stranger(nodes, hello(B, A)) as slow:
        await slow.answer()
        for start in range(0, len(whole), 100_000):
            slow.writer.write(whole[start : start + 100_000])
            await slow.writer.drain()
        handler = nodes.handlers[A]
        await handler.until(lambda: len(handler.messages) == 1)
        (inbound,) = nodes.transports[A]._inbound.values()
        assert inbound._reader.buffered_bytes == 0
