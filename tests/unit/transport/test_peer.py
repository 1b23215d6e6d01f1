from __future__ import annotations

import asyncio
import socket
from random import Random
from unittest.mock import Mock

import pytest
import uvloop

from dledger.common.errors import ConfigError, PeerRefused
from dledger.common.types import NodeId
from dledger.raft import codec
from dledger.raft.messages import Append
from dledger.transport.dialer import BackOff
from dledger.transport.peer import TcpTransport
from tests.unit.transport.messages import append, heartbeat, reset
from tests.unit.transport.nodes import (
    CANNOT_CONNECT,
    MIB,
    A,
    B,
    FalsePeer,
    Nodes,
    hello,
    rounds,
    stranger,
    wire,
)
from tests.unit.transport.recorder import LogRecorder, Recorder

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


async def test_a_small_state_far_larger_than_a_header_arrives(nodes: Nodes) -> None:
    a, _ = await nodes.pair()
    sent = reset(bytes(range(256)) * 20_000)
    assert a.send(B, sent)
    await nodes.handlers[B].until(lambda: bool(nodes.handlers[B].messages))
    assert nodes.handlers[B].messages == [(A, sent)]


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
        await TcpTransport("127.0.0.1", a.port, codec=codec, random=Random(1)).start(Recorder(B))


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


async def test_a_peer_that_is_not_there_yet_is_a_warning_only_when_nodes_had_time_to_start(
    log: LogRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BackOff, "next_s", lambda _: 0.01)
    transport = TcpTransport("127.0.0.1", 0, codec=codec, random=Random(1), gathering_s=0.2)
    await transport.start(Recorder(A))
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    transport.set_peers({B: f"127.0.0.1:{port}"})
    early, late = await log.until("not connected to a peer yet"), await log.until(CANNOT_CONNECT)
    assert (early["levelname"], late["levelname"]) == ("INFO", "WARNING")
    await transport.close()


def test_a_dial_that_is_broken_off_at_any_moment_does_not_keep_a_transport_from_closing() -> None:
    """On the loop that nodes run on: it never calls a connection lost whose making was cancelled."""

    async def dial_and_close() -> None:
        nodes = Nodes()
        await nodes.start(A)
        for turns in range(40):
            dialling = TcpTransport("127.0.0.1", 0, codec=codec, random=Random(1))
            await dialling.start(Recorder(B))
            dialling.set_peers({A: nodes.address(A)})
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await dialling.close()
        await nodes.close()

    uvloop.run(dial_and_close())
