"""A cluster whose addresses are IPv6's: wherever host and port are written as one, the host stands in brackets."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

import dledger
from dledger.cli.options import DEV_PORT_STEP
from dledger.cli.ports import free_base
from tests.integration.bad_input import refused, serving
from tests.integration.nodes import DEADLINE_S


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback here")
async def test_two_nodes_on_ipv6_elect_append_serve_and_say_where_they_are(tmp_path: Path) -> None:
    base = free_base(2)
    ports = {"n0": base, "n1": base + DEV_PORT_STEP}
    peers = ",".join(f"{node}=[::1]:{port}" for node, port in ports.items())
    async with AsyncExitStack() as stack:
        for node_id in ports:
            flags = ("--id", node_id, "--peers", peers, "--data", str(tmp_path / node_id))
            await stack.enter_async_context(serving(*flags, output=tmp_path / f"{node_id}.log"))
        log = await stack.enter_async_context(dledger.connect(f"[::1]:{base + 1}", timeout_ms=DEADLINE_S * 1_000))
        ack = await log.append(b"six")
        assert (await log.get(ack.index)).value == b"six"
        status = await log.status()
        for node in status.nodes:
            port = ports[node.id]
            assert node.reachable
            assert (node.address, node.peer_address) == (f"[::1]:{port + 1}", f"[::1]:{port}")
            assert node.http_address == f"[::1]:{port + 2}"
            with await asyncio.to_thread(urlopen, f"http://{node.http_address}/metrics", timeout=5) as answer:
                assert b"dledger_has_leader" in answer.read()
        assert await log.admin.transfer_leadership(next(each for each in ports if each != status.leader))
        assert (await log.append(b"after")).index > ack.index


async def test_an_ipv6_address_without_brackets_is_refused(tmp_path: Path) -> None:
    flags = ("--id", "n0", "--peers", "n0=::1:20911", "--data", str(tmp_path / "n0"))
    ended = await refused(*flags, output=tmp_path / "log")
    assert ended.code == 2
    assert "write an IPv6 address in brackets, [::1]:20911" in ended.last_line
