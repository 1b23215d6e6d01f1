"""What keeps ``dledger serve`` from starting: a line that says what is wrong and what to do, and nothing is changed."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from dledger.cli.ports import LOOPBACK, free_base
from dledger.common.config import GRPC_PORT_OFFSET, HTTP_PORT_OFFSET
from tests.integration.bad_input import (
    files_below,
    flags_of,
    nothing_written_nobody_hurt,
    peers_of,
    refused,
    unimpressed,
)
from tests.integration.nodes import Nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with unimpressed(tmp_path_factory.mktemp("bad-starts")) as started:
        yield started


async def test_a_data_directory_in_use_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.cluster.nodes["n0"]
    async with nothing_written_nobody_hurt(nodes):
        ended = await refused(*flags_of(node, peers_of(nodes), node.data_dir), output=tmp_path / "log")
    assert ended.code == 2
    assert f"the data directory {node.data_dir} is in use by process {nodes.pids()['n0']}: stop it" in ended.last_line


async def test_a_data_directory_of_another_node_is_refused_and_stays_as_it_is(nodes: Nodes, tmp_path: Path) -> None:
    follower = (await nodes.followers())[0]
    other = next(node for node in nodes.cluster.nodes.values() if node.id != follower)
    before = await nodes.settled()
    assert await nodes.terminate(follower) == [0]
    directory = nodes.cluster.nodes[follower].data_dir
    files = files_below(directory)
    flags = flags_of(other, {other.id: "127.0.0.1:1"}, directory)
    ended = await refused(*flags, "--grpc-port", "2", "--http-port", "0", output=tmp_path / "log")
    assert ended.code == 2
    assert f"belongs to node {follower!r}, not {other.id!r}: check --id and --data" in ended.last_line
    assert files_below(directory) == files
    await nodes.restart(follower)
    assert await nodes.settled() == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('durabilty = "fsync"', "has an unknown key 'durabilty': did you mean 'durability'?"),
        ("[limits]\nmax_batch = 1", "has an unknown key 'max_batch': did you mean 'max_batch_bytes'?"),
        ('durability = "sometimes"', "cannot be 'sometimes': choose fsync, interval, none"),
        ("id = ", "is not TOML"),
    ],
)
async def test_a_configuration_that_says_what_is_not_known_is_refused_before_anything_is_made(
    tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "n0.toml").write_text(content)
    flags = ["--config", str(tmp_path / "n0.toml"), "--id", "n0", "--peers", "n0=127.0.0.1:1"]
    ended = await refused(*flags, "--data", str(tmp_path / "data"), output=tmp_path / "log")
    assert ended.code == 2
    assert words in ended.last_line
    assert ended.output.count("\n") == 1
    assert not (tmp_path / "data").exists()


@contextmanager
def listening_on(port: int) -> Iterator[None]:
    with closing(socket.socket()) as holder:
        holder.bind((LOOPBACK, port))
        holder.listen()
        yield


@pytest.mark.parametrize("offset", [0, GRPC_PORT_OFFSET, HTTP_PORT_OFFSET], ids=["peer", "grpc", "http"])
async def test_a_port_in_use_is_named_and_the_node_ends_before_it_stands_for_election(
    tmp_path: Path, offset: int
) -> None:
    base = free_base(1)
    taken = base + offset
    flags = ["--id", "n0", "--peers", f"n0={LOOPBACK}:{base}", "--data", str(tmp_path / "n0")]
    with listening_on(taken):
        ended = await refused(*flags, output=tmp_path / "log")
    assert ended.code == 2
    assert f"{LOOPBACK}:{taken}" in ended.last_line
    assert "role changed" not in ended.output


async def test_an_own_name_that_cannot_be_looked_up_is_said_to_be_that(tmp_path: Path) -> None:
    peers = f"n0=not-yet.invalid:{free_base(1)}"
    ended = await refused("--id", "n0", "--peers", peers, "--data", str(tmp_path / "n0"), output=tmp_path / "log")
    assert ended.code == 2
    assert "the name cannot be looked up" in ended.last_line
    assert "in use" not in ended.last_line
    assert "free that port" not in ended.last_line
    assert not (tmp_path / "n0").exists()
