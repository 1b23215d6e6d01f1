from __future__ import annotations

from unittest.mock import Mock

import pytest

from dledger.common.errors import Code, PeerRefused
from dledger.common.types import NodeId
from dledger.transport import connection, peer
from dledger.transport.hello import VERSION, judge_answer, judge_dial
from dledger.transport.transport_api import PeerIdentity
from dledger.v1 import raft_pb2 as pb
from tests.fuzz.decoders import Stranger
from tests.unit.transport.nodes import (
    CANNOT_CONNECT,
    A,
    B,
    FalsePeer,
    Nodes,
    hello,
    stranger,
)
from tests.unit.transport.recorder import LogRecorder


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
    assert {peer: str(refusal) for peer, refusal in a.refusals.items()} == {B: "b refused: a is of cluster x"}


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


async def test_with_a_stranger_beyond_the_limit_the_oldest_is_closed_so_that_a_member_gets_in(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "MAX_STRANGERS", 1)
    await nodes.start(A)
    async with stranger(nodes) as silent, stranger(nodes, hello(B, A)) as member:
        assert await silent.rest() == b""
        assert (await member.answer()).node_id == A
        async with stranger(nodes) as later:
            later.writer.write(hello(B, A))
            assert (await later.answer()).node_id == A


def test_a_refusal_in_a_strangers_words_is_one_line_of_a_log() -> None:
    words = "a\nb\x1b[31m\u202e" + "x" * 5_000
    hello = pb.Hello(version=1, refusal_reason="UNEXPECTED_MEMBER", refusal_message=words).SerializeToString()
    with pytest.raises(PeerRefused) as refusal:
        judge_answer(hello, Stranger("a"), NodeId("b"))
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 1_100


def test_a_hello_for_somebody_with_an_endless_name_is_refused_in_a_few_words() -> None:
    hello = pb.Hello(
        version=1, node_id="b", node_uuid=b"u", start_count=1, start_nonces=[1], expected_node_id="x" * 10_000
    )
    with pytest.raises(PeerRefused) as refusal:
        judge_dial(hello.SerializeToString(), Stranger("a"))
    assert len(str(refusal.value)) < 500
