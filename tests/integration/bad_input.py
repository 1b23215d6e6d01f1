"""Around bad input: nodes that it must not touch, and processes that must refuse to start."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from dledger.cli.cluster import LocalNode
from dledger.common.config_file import format_peers
from tests.integration.nodes import DEADLINE_S, Nodes, Stubs, alive, running

LOG_LINE = r"\d{4}-\d\d-\d\dT.* (info|warning) +dledger\."


@asynccontextmanager
async def unimpressed(data: Path) -> AsyncIterator[Nodes]:
    """Three nodes with two records, that have said no word of trouble by the end."""
    async with running(data) as started:
        await started[await started.leader()].append(b"good", b"before")
        yield started
        lines = chain.from_iterable(started.log_of(node_id).splitlines() for node_id in started.ids)
        assert [line for line in lines if " error " in line or " critical " in line or "Traceback" in line] == []


@asynccontextmanager
async def nothing_written_nobody_hurt(nodes: Nodes) -> AsyncIterator[Stubs]:
    """Around bad input: every node's log is what it was, every process lives, and appends go on."""
    before, pids = await nodes.settled(), nodes.pids()
    yield nodes[before[-1]]
    assert await nodes.settled() == before
    assert nodes.pids() == pids
    assert all(map(alive, pids.values()))
    ack = await nodes[await nodes.leader()].append(b"still here")
    assert ack.base_index == before[0] + 1


class Ended(NamedTuple):
    code: int
    last_line: str
    output: str


@asynccontextmanager
async def serving(*flags: str, output: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """``dledger serve`` on its own, killed in the end if it is still there."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DLEDGER_")}
    with output.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dledger", "serve", *flags, stdout=log, stderr=log, env=environment
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def refused(*flags: str, output: Path) -> Ended:
    """Runs ``dledger serve``, which must end by itself."""
    async with serving(*flags, output=output) as process, asyncio.timeout(DEADLINE_S):
        code = await process.wait()
    said = output.read_text()
    *logged, last_line = said.splitlines()
    assert last_line.startswith("dledger: ")
    assert [line for line in logged if not re.match(LOG_LINE, line)] == []
    return Ended(code, last_line, said)


def files_below(directory: Path) -> dict[str, bytes]:
    """All but the LOCK, which names the last process that held it."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != "LOCK")
    return {str(path): path.read_bytes() for path in files}


def peers_of(nodes: Nodes) -> dict[str, str]:
    return {node.id: node.peer_address for node in nodes.cluster.nodes.values()}


def flags_of(node: LocalNode, peers: dict[str, str], data: Path) -> list[str]:
    return ["--id", node.id, "--peers", format_peers(peers), "--data", str(data)]
