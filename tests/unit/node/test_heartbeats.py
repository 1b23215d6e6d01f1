"""Heartbeats of many groups to one peer leave as one message at the end of the turn, in the order of each group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from dledger.common.errors import PeerRefused
from dledger.common.types import DiskState, NodeId, Position, Term
from dledger.node.heartbeats import MAX_ROW_BYTES, HeartbeatCoalescer, rows_of
from dledger.raft import codec
from dledger.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatResponse,
    HeartbeatResponseBatch,
    Message,
    PeerMessage,
    PushResult,
)
from dledger.testing.memory_network import MemoryNetwork
from dledger.transport.framing import MAX_HEADER_BYTES
from dledger.transport.transport_api import TransportHandler
from tests.support.virtual_time import settle, virtual_time
from tests.unit.transport.recorder import Recorder

B, C = NodeId("b"), NodeId("c")
MOST = (1 << 64) - 1


class Wire:
    """A ``Transport`` that notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, PeerMessage]] = []
        self.dropped = 0
        self.refusals: dict[NodeId, PeerRefused] = {}
        self.up = {B, C}
        self.takes = True

    def send(self, peer: NodeId, message: PeerMessage) -> bool:
        if not self.takes or peer not in self.up:
            self.dropped += 1
            return False
        self.sent.append((peer, message))
        return True

    def is_connected(self, peer: NodeId) -> bool:
        return peer in self.up

    def dropped_messages(self, _peer: NodeId) -> int:
        return self.dropped

    async def check_port(self) -> None: ...

    async def start(self, handler: TransportHandler[PeerMessage]) -> None: ...

    def set_peers(self, addresses: dict[NodeId, str]) -> None: ...

    async def close(self) -> None: ...


def beat(group: str, round_: int = 0) -> Heartbeat:
    return Heartbeat(group, Term(1), Position(0), round_)


def answer(group: str, round_: int = 0) -> HeartbeatResponse:
    return HeartbeatResponse(group, Term(1), round_)


def ack(group: str) -> AppendResponse:
    return AppendResponse(group, Term(1), PushResult.SUCCESS, Position(1))


def push(group: str) -> Append:
    return Append(group, Term(1), Position(0), ())


async def test_all_heartbeats_of_a_turn_to_a_peer_are_one_message() -> None:
    wire = Wire()
    coalescer = HeartbeatCoalescer(wire)
    groups = [f"g{number}" for number in range(200)]
    for group in groups:
        assert coalescer.send(B, beat(group))
        assert coalescer.send(C, beat(group))
        assert coalescer.send(C, answer(group + "-led-there"))
    assert not wire.sent
    await asyncio.sleep(0)
    beats = HeartbeatBatch(tuple(map(beat, groups)))
    answers = HeartbeatResponseBatch(tuple(answer(group + "-led-there") for group in groups))
    assert wire.sent == [(B, beats), (C, beats), (C, answers)]


async def test_timers_of_one_instant_share_a_message() -> None:
    wire = Wire()
    coalescer = HeartbeatCoalescer(wire)
    loop = asyncio.get_running_loop()
    at_s = loop.time() + 0.01
    for group in ("g1", "g2", "g3"):
        loop.call_at(at_s, coalescer.send, B, beat(group))
    await asyncio.sleep(0.02)
    ((peer, message),) = wire.sent
    assert peer == B
    assert set(rows_of(message)) == {beat("g1"), beat("g2"), beat("g3")}


async def test_each_turn_has_its_own_and_one_heartbeat_alone_is_sent_as_it_is() -> None:
    wire = Wire()
    coalescer = HeartbeatCoalescer(wire)
    for round_ in (1, 2):
        coalescer.send(B, beat("g1", round_))
        await asyncio.sleep(0)
    coalescer.send(B, answer("g2"))
    await asyncio.sleep(0)
    assert wire.sent == [(B, beat("g1", 1)), (B, beat("g1", 2)), (B, answer("g2"))]


async def test_other_messages_leave_at_once() -> None:
    wire = Wire()
    coalescer = HeartbeatCoalescer(wire)
    coalescer.send(B, beat("g1"))
    coalescer.send(C, beat("g2"))
    coalescer.send(B, push("g2"))
    assert wire.sent == [(B, push("g2"))]
    await asyncio.sleep(0)
    assert wire.sent[1:] == [(B, beat("g1")), (C, beat("g2"))]


async def test_a_message_of_a_group_does_not_overtake_its_heartbeat() -> None:
    wire = Wire()
    coalescer = HeartbeatCoalescer(wire)
    coalescer.send(B, beat("g1", 1))
    coalescer.send(B, beat("g2", 1))
    coalescer.send(B, push("g1"))
    coalescer.send(B, beat("g1", 2))
    await asyncio.sleep(0)
    assert wire.sent == [(B, HeartbeatBatch((beat("g1", 1), beat("g2", 1)))), (B, push("g1")), (B, beat("g1", 2))]


async def test_a_heartbeat_and_an_answer_of_one_group_keep_their_order() -> None:
    """A node that answers a leader, and is one itself within the same turn."""
    wire = Wire()
    coalescer = HeartbeatCoalescer(wire)
    coalescer.send(B, answer("g1"))
    coalescer.send(B, answer("g2"))
    coalescer.send(B, beat("g1"))
    coalescer.send(B, answer("g1"))
    await asyncio.sleep(0)
    assert wire.sent == [
        (B, HeartbeatResponseBatch((answer("g1"), answer("g2")))),
        (B, beat("g1")),
        (B, answer("g1")),
    ]


async def test_each_heartbeat_of_a_dropped_batch_is_counted_once() -> None:
    wire = Wire()
    coalescer = HeartbeatCoalescer(wire)
    assert all(coalescer.send(B, beat(f"g{number}")) for number in range(5))
    assert all(coalescer.send(B, answer(f"h{number}")) for number in range(3))
    wire.takes = False
    await asyncio.sleep(0)
    assert coalescer.dropped_messages(B) == 8
    assert not coalescer.send(B, ack("g1"))
    assert coalescer.dropped_messages(B) == 9
    assert not wire.sent


async def test_a_heartbeat_to_a_peer_that_is_not_connected_is_dropped_at_once() -> None:
    wire = Wire()
    coalescer = HeartbeatCoalescer(wire)
    wire.up.clear()
    assert not coalescer.send(B, beat("g1"))
    assert coalescer.dropped_messages(B) == 1
    await asyncio.sleep(0)
    assert not wire.sent


def largest(message: type[Heartbeat | HeartbeatResponse], group: str) -> Heartbeat | HeartbeatResponse:
    if message is Heartbeat:
        return Heartbeat(group, Term(MOST), Position(MOST), MOST)
    return HeartbeatResponse(group, Term(MOST), MOST, True, DiskState.HUNG, MOST, False)


async def test_batches_fit_a_header_however_many_groups_there_are() -> None:
    for kind in (Heartbeat, HeartbeatResponse):
        wire = Wire()
        coalescer = HeartbeatCoalescer(wire)
        sent = [largest(kind, f"{number:0>100}ü") for number in range(2_000)]
        for each in sent:
            coalescer.send(B, each)
        await asyncio.sleep(0)
        assert [row for _, message in wire.sent for row in rows_of(message)] == sent
        for _, message in wire.sent:
            encoded = codec.encode(message, cluster_id="c" * 255, sender=NodeId("n" * 255))
            assert len(encoded.header) <= MAX_HEADER_BYTES
        assert len(wire.sent) <= 2 + 2_000 * (MAX_ROW_BYTES + 102) // MAX_HEADER_BYTES


@virtual_time
async def test_groups_hear_each_row_over_a_network() -> None:
    network = MemoryNetwork(Random(1))
    handlers = {node: Recorder(node) for node in ("b", "c")}
    transports = {node: network.transport(NodeId(node)) for node in handlers}
    for node, transport in transports.items():
        await transport.start(handlers[node])
        transport.set_peers({B: "", C: ""})
    await asyncio.sleep(0.1)
    coalescer, before = HeartbeatCoalescer(transports["b"]), network.counters.sent
    beats: Sequence[Message] = [beat("g1", 1), beat("g2", 1), beat("g1", 2)]
    for each in beats:
        coalescer.send(C, each)
    await settle()
    await asyncio.sleep(0.1)
    assert network.counters.sent == before + 1
    assert [(sender, row) for sender, whole in handlers["c"].messages for row in rows_of(whole)] == [
        (B, each) for each in beats
    ]
