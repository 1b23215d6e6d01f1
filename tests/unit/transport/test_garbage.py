"""What is no message of a node: closed with one line, nobody crashes, and what came before counts."""

from __future__ import annotations

import struct
from random import Random

import pytest

from dledger.common.batch import crc32c
from dledger.common.types import NodeId
from dledger.raft.messages import Append
from dledger.transport.framing import PREFIX_BYTES, pack
from dledger.v1 import raft_pb2 as pb
from tests.unit.transport.messages import append, frames_of, heartbeat
from tests.unit.transport.nodes import (
    CLOSED,
    MIB,
    A,
    B,
    Nodes,
    hello,
    rounds,
    stranger,
    wire,
)
from tests.unit.transport.recorder import LogRecorder


def flipped(data: bytes, offset: int) -> bytes:
    copy = bytearray(data)
    copy[offset] ^= 1
    return bytes(copy)


GOOD = wire(append([b"12345678"]), B)
UNKNOWN_KIND = b"".join(pack(pb.PeerMessage(group="default").SerializeToString()))

BEFORE_THE_HELLO = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("1603010200010001fc0303") + bytes(500),
    "noise": Random(3).randbytes(10_000),
    "zeros": bytes(100),
    "too long": struct.pack("<III", 1 << 31, 10, 0),
    "no protobuf": struct.pack("<III", 15, 3, crc32c(b"\xff\xff\xff")) + b"\xff\xff\xff",
    "an id no node has": hello(NodeId("b\n"), A),
    "no uuid": hello(B, A, node_uuid=b""),
    "no starts": hello(B, A, start_nonces=[]),
    "more starts than it counts": hello(B, A, start_nonces=[1, 2]),
    "more starts than are ever told": hello(B, A, start_count=1_000, start_nonces=[0] * 300),
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
