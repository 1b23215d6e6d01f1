"""The piece that runs nodes as processes, with small stand-ins for nodes."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dledger.cli.cluster import LocalCluster, LocalNode, last_words
from dledger.cli.ports import busy_port, free_base, ports_of
from dledger.common.errors import Code, ConfigError, DLedgerError

STAND_IN = """
import os, signal, sys
from pathlib import Path
from dledger.cli.lifeline import stop_when_released
flags = dict(zip(sys.argv[2::2], sys.argv[3::2]))
if "fail" in os.environ.get("STAND_IN", ""):
    print("dledger: the disk is on fire", file=sys.stderr)
    sys.exit(5)
stop_when_released(Path(flags["--stop-with"]))
print("up", " ".join(sorted(key for key in os.environ if key.startswith("DLEDGER_"))), flush=True)
signal.pause()
"""

Make = Callable[..., LocalCluster]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes clusters of stand-ins, and stops them."""
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    made: list[LocalCluster] = []

    def make(**settings: object) -> LocalCluster:
        cluster = LocalCluster(tmp_path / "data", program=(sys.executable, str(script)), **settings)  # type: ignore[arg-type]
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        await cluster.stop()


async def is_up(node: LocalNode) -> None:
    async with asyncio.timeout(10):
        while not (node.log_file.exists() and "up" in node.log_file.read_text()):  # noqa: ASYNC110  another process's
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_nodes_are_started_killed_brought_back_and_stopped(make: Make) -> None:
    cluster = make(nodes=2)
    await cluster.start()
    first = cluster.nodes["n0"]
    await is_up(first)
    assert first.process is not None
    old = first.process.pid
    assert await cluster.kill("n0") == old
    assert not alive(old)
    new = await cluster.restart("n0")
    assert alive(new)
    await cluster.stop()
    assert not any(node.running for node in cluster.nodes.values())


async def test_a_node_that_dies_is_told_of_and_one_that_was_killed_here_is_not(make: Make) -> None:
    died: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    cluster = make(nodes=2, on_exit=lambda node, code: died.put_nowait((node.id, code)))
    await cluster.start()
    await cluster.kill("n0")
    process = cluster.nodes["n1"].process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    assert await asyncio.wait_for(died.get(), 10) == ("n1", -9)
    assert died.empty()


async def test_the_callers_environment_does_not_reach_the_nodes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLEDGER_CLUSTER_ID", "other")
    cluster = make(nodes=1)
    await cluster.start()
    await is_up(cluster.nodes["n0"])
    assert "DLEDGER" not in cluster.nodes["n0"].log_file.read_text()


async def test_a_port_in_use_is_named_before_anything_starts(make: Make) -> None:
    base = free_base(1)
    in_use = pytest.raises(ConfigError, match=f"port {base + 1} is in use")
    with socket.create_server(("127.0.0.1", base + 1)), in_use:
        await make(nodes=1, port=base).start()


async def test_a_node_that_does_not_start_is_quoted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "fail")
    cluster = make(nodes=1)
    await cluster.start()
    with pytest.raises(ConfigError, match="n0 did not start: the disk is on fire"):
        await cluster.wait_ready(10)


async def test_a_second_cluster_on_the_same_data_is_refused(make: Make) -> None:
    await make(nodes=1).start()
    with pytest.raises(ConfigError, match="run by another process"):
        await make(nodes=1).start()


async def test_the_serve_line_is_the_command_that_runs_the_node(make: Make) -> None:
    cluster = make(nodes=3, port=30_000, serve_flags=["--log-level", "debug"])
    line = cluster.serve_line("n2")
    assert shlex.split(line) == cluster.serve_command("n2")
    assert "serve --id n2 --peers n0=127.0.0.1:30000,n1=127.0.0.1:30010,n2=127.0.0.1:30020" in line
    assert cluster.endpoints == "127.0.0.1:30001,127.0.0.1:30011,127.0.0.1:30021"
    with pytest.raises(DLedgerError) as refused:
        cluster.serve_line("n3")
    assert refused.value.code is Code.UNKNOWN_MEMBER


async def test_a_node_that_is_added_joins_the_others(make: Make) -> None:
    cluster = make(nodes=2, port=free_base(2))
    endpoints = cluster.endpoints
    await cluster.start()
    node = await cluster.add()
    await is_up(node)
    assert node.id == "n2"
    assert f"serve --id n2 --address {node.peer_address} --join {endpoints} --data" in cluster.serve_line("n2")
    assert node.peer_address not in cluster.serve_line("n0")
    assert cluster.endpoints == f"{endpoints},{node.client_address}"
    await cluster.kill("n2")
    assert alive(await cluster.restart("n2"))


@pytest.mark.parametrize("settings", [{"nodes": 0}, {"nodes": 100}, {"nodes": 3, "port": 65530}])
async def test_a_cluster_that_has_no_room_is_refused(make: Make, settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        make(**settings)


def test_a_free_block_is_free() -> None:
    assert busy_port(ports_of(free_base(3), 3)) is None


def test_last_words_are_the_last_line(tmp_path: Path) -> None:
    log = tmp_path / "n0.log"
    assert "left nothing" in last_words(log)
    log.write_text("starting\ndledger: port 1 is in use\n\n")
    assert last_words(log) == "port 1 is in use"
