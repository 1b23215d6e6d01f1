"""Who must be turned away on the peer port: strangers, impostors, noise; and why is said on both sides."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dledger.cli.ports import LOOPBACK, free_base
from dledger.transport.framing import PREFIX_BYTES, pack
from dledger.v1.raft_pb2 import Hello
from tests.integration.bad_input import (
    flags_of,
    nothing_written_nobody_hurt,
    peers_of,
    refused,
    serving,
    unimpressed,
)
from tests.integration.nodes import DEADLINE_S, Nodes, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with unimpressed(tmp_path_factory.mktemp("bad-peers")) as started:
        yield started


async def says(log: Path, *words: str) -> None:
    """The file has one line with all of these words."""

    async def said() -> bool:
        return any(all(word in line for word in words) for line in log.read_text().splitlines())

    await eventually(said, f"{log} says {words}")


def elsewhere(nodes: Nodes, node_id: str) -> dict[str, str]:
    """The peers as a second node of this id sees them: its own address is another one."""
    return peers_of(nodes) | {node_id: f"{LOOPBACK}:{free_base(1)}"}


async def test_a_second_node_with_the_same_id_is_turned_away(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.cluster.nodes[(await nodes.followers())[0]]
    flags = flags_of(node, elsewhere(nodes, node.id), tmp_path / "second")
    async with nothing_written_nobody_hurt(nodes) as leader, serving(*flags, output=tmp_path / "log"):
        words = f"a node {node.id} is connected already; stop one of the two, or give it another --id"
        await says(tmp_path / "log", "cannot connect to a peer", "UNEXPECTED_MEMBER", words)
        for other in nodes.ids:
            if other != node.id:
                await says(nodes.cluster.nodes[other].log_file, "UNEXPECTED_MEMBER", words)
        assert (await leader.status()).role == "leader"


async def test_a_node_of_another_cluster_is_turned_away(nodes: Nodes, tmp_path: Path) -> None:
    """It took a member's place, address and all; the member comes back unharmed."""
    place = (await nodes.followers())[0]
    node = nodes.cluster.nodes[place]
    cluster_id = (await nodes[place].status()).cluster_id
    last_index, *_ = await nodes.settled()
    await nodes.cluster.kill(place)
    flags = flags_of(node, peers_of(nodes), tmp_path / "stranger")
    async with serving(*flags, "--cluster-id", "another", output=tmp_path / "log"):
        words = f"{place} belongs to cluster another, "
        await says(tmp_path / "log", "UNKNOWN_CLUSTER", words, cluster_id, "check its --peers and its data directory")
        for other in nodes.running:
            await says(nodes.cluster.nodes[other].log_file, "UNKNOWN_CLUSTER", words)
        leader = await nodes.leader()
        assert (await nodes[leader].append(b"without it")).base_index == last_index + 1
        status = await nodes[place].status("meta")
        assert (status.last_index, status.position, status.cluster_id) == (-1, 0, "another")
        assert status.role != "leader"
    await nodes.restart(place)
    assert (await nodes.settled())[0] == last_index + 1


async def test_a_directory_of_another_cluster_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    place = (await nodes.followers())[0]
    node = nodes.cluster.nodes[place]
    cluster_id = (await nodes[place].status()).cluster_id
    assert await nodes.terminate(place) == [0]
    flags = flags_of(node, peers_of(nodes), node.data_dir)
    ended = await refused(*flags, "--cluster-id", "another", output=tmp_path / "log")
    assert ended.code == 2
    assert f"belongs to cluster {cluster_id}, not another: fix --cluster-id" in ended.last_line
    await nodes.restart(place)


def hello(**fields: Any) -> bytes:
    wanted: dict[str, Any] = {"version": 1, "node_uuid": b"u" * 16, "start_count": 1, "start_nonces": [1]} | fields
    return b"".join(pack(Hello(**wanted).SerializeToString()))


async def answer_to(address: str, first: bytes) -> bytes:
    """All that a node answers to ``first`` on its peer port until it closes the connection."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(first)
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])


REFUSED_HELLOS: dict[str, tuple[dict[str, Any], str]] = {
    "another version": ({"version": 2}, "UNSUPPORTED_VERSION"),
    "another cluster": ({"cluster_id": "another"}, "UNKNOWN_CLUSTER"),
    "a stranger": ({"node_id": "n9"}, "UNKNOWN_MEMBER"),
    "the node's own id": ({"node_id": "n0"}, "UNEXPECTED_MEMBER"),
    "a second of the same id": ({}, "UNEXPECTED_MEMBER"),
    "meant for another": ({"expected_node_id": "n2"}, "UNEXPECTED_MEMBER"),
}


async def test_hellos_that_are_refused_are_answered_with_the_reason(nodes: Nodes) -> None:
    address = nodes.cluster.nodes["n0"].peer_address
    told = {}
    async with nothing_written_nobody_hurt(nodes):
        for name, (fields, _) in REFUSED_HELLOS.items():
            answer = await answer_to(address, hello(**{"node_id": "n1", "expected_node_id": "n0"} | fields))
            told[name] = Hello.FromString(answer[PREFIX_BYTES:]).refusal_reason
    assert told == {name: reason for name, (_, reason) in REFUSED_HELLOS.items()}


async def test_noise_on_the_peer_port_is_not_answered(nodes: Nodes) -> None:
    noise = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        bytes(100),
        b"\xff" * 10_000,
        struct.pack("<III", 1 << 31, 10, 0),
        hello(node_id="n1\n", expected_node_id="n0"),
        hello(node_id="n1", expected_node_id="n0", node_uuid=b""),
    ]
    async with nothing_written_nobody_hurt(nodes):
        for node in nodes.cluster.nodes.values():
            assert await asyncio.gather(*(answer_to(node.peer_address, first) for first in noise)) == [b""] * len(noise)
    for node_id in nodes.ids:
        assert "closed a connection from a peer" in nodes.log_of(node_id)
