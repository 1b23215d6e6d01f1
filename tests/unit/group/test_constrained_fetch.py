"""A candidate that nobody can replace, and that lacks frames, gets them from whichever voter has them undamaged."""

from __future__ import annotations

import pytest

from tests.simulation.process import in_world
from tests.unit.group.rot import leave_constrained, places, rot, rotting, until


@pytest.mark.parametrize("rotten", [None, 0, 1], ids=["none", "first by id", "second by id"])
@in_world
async def test_a_candidate_fetches_from_whoever_has_it(rotten: int | None) -> None:
    """Two of five are gone; of the others the middle one reaches both, they not each other."""
    async with rotting(5) as (cluster, hosts):
        ends = await leave_constrained(cluster, hosts, appends=5)
        last = max(places(ends[0]))
        if rotten is not None:
            rot(ends[rotten], last - 2)
            ends[rotten].has_rotted = True
        middle = hosts[1]
        for host in (*ends, middle):
            await host.start()
        await until(lambda: middle.replica.log.last.position >= last, 120)
