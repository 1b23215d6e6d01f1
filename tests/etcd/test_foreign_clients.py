"""Other people's clients of etcd work unchanged on three nodes while leaders are killed and come back.

The programs of tests/etcd/foreign see for themselves that sums are right, that nothing overlaps, and that a watch tells
each change once.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.etcd.foreign.kills import at_work, kill_leaders, kill_the_watched
from tests.etcd.foreign.programs import foreign_program
from tests.integration.nodes import running

pytestmark = pytest.mark.timeout(120)


class Foreign(NamedTuple):
    name: str
    """Of its folder."""
    kills: int
    """Of leaders."""
    parts: tuple[str, ...]


ALL = ("counters", "mutex", "election", "observe", "lease", "watch")
WITHOUT_ELECTIONS = ("counters", "mutex", "lease", "watch")
PROGRAMS = (Foreign("go", 3, ALL), Foreign("java", 1, ALL), Foreign("python", 1, WITHOUT_ELECTIONS))


@pytest.mark.parametrize("foreign", PROGRAMS, ids=lambda each: each.name)
async def test_a_foreign_client_works_while_leaders_are_killed(foreign: Foreign, tmp_path: Path) -> None:
    async with running(tmp_path) as nodes, at_work(foreign_program(foreign.name), nodes) as client:
        await kill_leaders(nodes, client, foreign.parts, foreign.kills)
        await kill_the_watched(nodes, client, foreign.parts)
        report = await client.end()
    assert report["counters"]["counted"] > 0
    assert report["watch"]["events"] == 2 * report["counters"]["counted"]
    assert report["watch"]["moves"] >= 1
    assert report["mutex"]["sections"] > 0
    assert report["lease"]["kept"] > 0
    if "election" in foreign.parts:
        assert report["election"]["terms"] > 0
        assert report["election"]["observed"] > 0
