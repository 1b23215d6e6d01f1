"""The log has the members: a configuration that names others is told that it counts no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dledger.node.node import Node
from tests.unit.node.groups import IDS, Machines, machines

TOLD = "the log counts"


async def restart(running: Machines, *peers: str) -> None:
    """n0 ends, and is opened again with these peers."""
    config = running.nodes[IDS[0]].config
    await running.stop(IDS[0])
    node = Node(replace(config, peers={each: f"{each}:1" for each in peers}))
    try:
        await node.open()
    finally:
        await node.stop()


@pytest.mark.parametrize(
    ("peers", "is_told"), [(("n0", "n1", "n2"), False), (("n0", "n1"), True), (("n0", "n1", "n7"), True)]
)
async def test_peers_that_are_not_the_members_are_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, peers: tuple[str, ...], *, is_told: bool
) -> None:
    async with machines(tmp_path) as running:
        assert TOLD not in caplog.text
        await restart(running, *peers)
    assert sum(TOLD in message for message in caplog.messages) == is_told
