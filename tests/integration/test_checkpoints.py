"""The directory of groups: its log is trimmed behind checkpoints, and a start is restored from the last one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import dledger
from dledger.cli.ports import free_base
from dledger.common.errors import DLedgerError
from dledger.common.types import META_GROUP
from dledger.server.cluster_node import ClusterNode
from dledger.statemachine.keeper import KeeperOptions
from tests.integration.nodes import eventually

OFTEN = KeeperOptions(checkpoint_after_bytes=1_200)
IDS = ("n0", "n1", "n2")


def configs(directory: Path) -> list[dledger.NodeConfig]:
    base = free_base(len(IDS))
    peers = {node_id: f"127.0.0.1:{base + 10 * at}" for at, node_id in enumerate(IDS)}
    return [dledger.NodeConfig(each, peers, directory / each, http_port=0) for each in IDS]


@asynccontextmanager
async def running(configs: list[dledger.NodeConfig]) -> AsyncIterator[list[ClusterNode]]:
    async with AsyncExitStack() as stack:
        nodes = [ClusterNode(config) for config in configs]
        for node in nodes:
            node.meta._keeper._options = OFTEN
        await asyncio.gather(*(stack.enter_async_context(node) for node in nodes))
        yield nodes


async def names(nodes: list[ClusterNode]) -> set[str]:
    """By whoever leads `meta`; empty while nobody does."""
    for node in nodes:
        try:
            return {entry.name for entry in await node.directory.groups()}
        except DLedgerError:
            continue
    return set()


async def create(nodes: list[ClusterNode], name: str) -> None:
    async def created() -> bool:
        for node in nodes:
            try:
                await node.directory.create(name, [])
            except DLedgerError:
                continue
            return True
        return name in await names(nodes)

    await eventually(created, f"{name} is made")


def begins(node: ClusterNode) -> int:
    return node.replica(META_GROUP).log.state.first_index


async def test_the_log_of_the_directory_is_trimmed_and_a_start_is_restored(tmp_path: Path) -> None:
    made = configs(tmp_path)
    expected = {"default", *(f"g{at}" for at in range(6))}
    async with running(made) as nodes:
        for name in sorted(expected - {"default"}):
            await create(nodes, name)

        async def trimmed() -> bool:
            return all(begins(node) > 0 for node in nodes)

        await eventually(trimmed, "all nodes trim the log of meta")
        assert await names(nodes) == expected
    async with running(made) as nodes:

        async def there() -> bool:
            return await names(nodes) == expected

        await eventually(there, "the directory is there again")

        async def restored() -> bool:
            return sum(node.meta.runner.restores for node in nodes) > 0

        # The others' first segment may hold more than what is left of the log: they apply from there.
        await eventually(restored, "whoever rolled its log for the checkpoint is restored from it")
