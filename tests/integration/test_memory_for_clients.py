"""What clients can make a node hold: bounded, whatever they do."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dledger.common.config import MIB
from dledger.common.types import Durability
from dledger.rpc.client.channel import Channel
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.status import StatusCode
from dledger.v1 import log_pb2
from tests.integration.nodes import Nodes, eventually, running
from tests.integration.raw_clients import RawClient, Rss, raw_client

READERS = 150
RECORDS = 100
APPENDS = 200
IDLE = 2_000
APPEND, READ = "/dledger.v1.LogService/Append", b"/dledger.v1.LogService/Read"


def only(nodes: Nodes) -> tuple[str, int]:
    """Address and process."""
    [node_id] = nodes.ids
    return nodes[node_id].address, nodes.pids()[node_id]


async def large_log(nodes: Nodes) -> None:
    [node_id] = nodes.ids
    for number in range(RECORDS):
        await nodes[node_id].append(bytes([number]) * MIB)


@pytest.mark.parametrize("window_bytes", [65_535, 4 * MIB], ids=["small windows", "large windows"])
async def test_readers_that_stand_still_cost_a_node_little(tmp_path: Path, window_bytes: int) -> None:
    async with running(tmp_path, nodes=1, durability=Durability.NONE) as nodes:
        address, pid = only(nodes)
        await large_log(nodes)
        async with Rss(pid) as rss:
            readers = [await raw_client(address, window_bytes) for _ in range(READERS)]
            for number, reader in enumerate(readers):
                ask = log_pb2.ReadRequest(start_index=number % (RECORDS // 2), follow=True)
                reader.call(READ, ask.SerializeToString())
            await eventually(_all_have(readers, window_bytes), "every reader has what its window takes")
            await asyncio.sleep(2.0)  # what the node keeps is measured, and what it might still do

        assert rss.growth_bytes < 64 * MIB
        assert not any(reader.resets or reader.is_lost for reader in readers)
        # They are readers still, all of them.
        for reader in readers:
            reader.allow(MIB)
        await eventually(_all_have(readers, window_bytes + MIB), "every reader goes on")
        for reader in readers:
            reader.close()


def _all_have(readers: list[RawClient], size_bytes: int) -> Callable[[], Awaitable[bool]]:
    async def have() -> bool:
        return all(reader.data_bytes == size_bytes for reader in readers)

    return have


async def test_large_appends_at_once_are_answered_or_refused_and_leave_little(tmp_path: Path) -> None:
    async with running(tmp_path, nodes=1, durability=Durability.NONE) as nodes:
        address, pid = only(nodes)
        request = log_pb2.AppendRequest(records=[bytes(1_000_000)] * 4).SerializeToString()
        channels = [Channel(address) for _ in range(4)]
        ends: Counter[StatusCode] = Counter()

        async def append(channel: Channel) -> None:
            try:
                await channel.unary_unary(APPEND)(request, timeout=60.0)
                ends[StatusCode.OK] += 1
            except RpcFailure as failure:
                ends[failure.status] += 1

        async with Rss(pid) as rss:
            await asyncio.gather(*(append(channels[number % 4]) for number in range(APPENDS)))
        for channel in channels:
            await channel.close()
        assert ends.keys() <= {StatusCode.OK, StatusCode.RESOURCE_EXHAUSTED}
        assert ends[StatusCode.OK] > 10

        assert rss.growth_bytes < 500 * MIB
        assert rss.kept_bytes < 300 * MIB


async def test_idle_connections_cost_twenty_kilobytes_each(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < IDLE + 500:
        pytest.skip(f"this machine lets a process open {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, IDLE + 500), hard))
    async with running(tmp_path, nodes=1) as nodes:
        address, pid = only(nodes)
        await nodes[nodes.ids[0]].append(b"before")
        async with Rss(pid) as rss:
            idle = [await raw_client(address) for _ in range(IDLE)]
            await asyncio.sleep(1.0)

        assert rss.growth_bytes < 40 * MIB
        await nodes[nodes.ids[0]].append(b"after")
        assert not any(client.is_lost for client in idle)
        for client in idle:
            client.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
