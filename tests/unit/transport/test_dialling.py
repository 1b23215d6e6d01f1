"""Peers are known by name."""

from __future__ import annotations

from random import Random

from dledger.common.resolver import Resolver
from dledger.raft import codec
from dledger.transport.peer import TcpTransport
from tests.unit.transport.nodes import A, B, Nodes
from tests.unit.transport.recorder import Recorder


async def test_a_peer_is_dialled_by_name_at_each_of_its_addresses(nodes: Nodes) -> None:
    target = await nodes.start(B)
    recorder = Recorder(A)
    source = TcpTransport(
        "127.0.0.1", 0, codec=codec, random=Random(1), resolver=Resolver(lambda _: ["127.0.0.9", "127.0.0.1"])
    )
    await source.start(recorder)
    try:
        source.set_peers({B: f"b.test:{target.port}"})
        await recorder.until(lambda: source.is_connected(B))
    finally:
        await source.close()
