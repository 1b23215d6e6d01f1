"""etcd's own Go client, with the recipes that it ships, works unchanged while leaders are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.etcd.foreign.kills import at_work, kill_leaders, kill_the_watched
from tests.etcd.foreign.programs import foreign_program
from tests.integration.nodes import running

pytestmark = pytest.mark.timeout(120)

PROGRAM = "go"
PARTS = ("counters", "mutex", "election", "observe", "lease", "watch")
KILLS = 3


async def test_transactions_locks_elections_leases_and_watches_outlive_every_leader(tmp_path: Path) -> None:
    """The program itself sees that sums are right and that nothing overlaps: tests/etcd/foreign/go."""
    async with running(tmp_path) as nodes, at_work(foreign_program(PROGRAM), nodes) as client:
        await kill_leaders(nodes, client, PARTS, KILLS)
        await kill_the_watched(nodes, client, PARTS)
        report = await client.end()
    assert report["counters"]["counted"] > 0
    assert report["watch"]["events"] == 2 * report["counters"]["counted"]
    assert report["watch"]["moves"] >= 1
    assert report["mutex"]["sections"] > 0
    assert report["election"]["terms"] > 0
    assert report["lease"]["kept"] > 0
