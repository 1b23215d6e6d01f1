"""A tail that is lost at one end, and rotten where another has it: what can be had is had, and somebody leads."""

from __future__ import annotations

import asyncio
from functools import partial

from dledger.common.types import Position
from dledger.log.frame.frame import HEADER_BYTES
from dledger.raft.messages import Append
from dledger.testing.network_faults import Rule
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.process import in_world
from tests.unit.group.rot import append_one, damage, places, rot, rotting, until
from tests.unit.group.tails import tear

MARKED_S = 0.5
"""Longer than a log waits before it writes a mark alone."""


async def append_to_one(cluster: SimulatedCluster, leader: SimHost, follower: SimHost, frames: int) -> Position:
    """``frames`` that ``follower`` alone has durably, under a mark. The first of them."""
    (other,) = (host for host in cluster.hosts.values() if host not in (leader, follower))
    away = Rule(lambda _source, to, what: to == other.id and isinstance(what, Append), drop_share=1.0)
    cluster.network.faults.add(away)
    leader.mood.is_hung = True
    first = Position(leader.replica.log.last.position + 1)
    for position in range(first, first + frames):
        leader.ask(partial(append_one, leader, b"nobody knows"))
        await until(lambda at=position: follower.replica.log.durable_position == at)  # type: ignore[misc]
    await asyncio.sleep(MARKED_S)
    return first


def lose_from(host: SimHost, first: Position) -> None:
    """As a power cut: of what was not synced something is left, that is no frame."""
    host.crash()
    host.mood.mend()
    if first in places(host):
        file, offset, _ = places(host)[first]
        damage(file, offset + HEADER_BYTES + 4)
    else:
        tear(host)


@in_world
async def test_what_lies_before_the_rot_is_taken_of_who_has_it() -> None:
    async with rotting() as (cluster, (leader, follower, other)):
        first = await append_to_one(cluster, leader, follower, frames=3)
        lose_from(leader, first)
        lose_from(other, first)
        follower.crash()
        rot(follower, first + 1)
        follower.has_rotted = True
        await follower.start()
        await leader.start()
        await other.start()
        await until(lambda: any(host.leads and host.replica.core.is_ready for host in cluster.up()))
        assert leader.replica.log.term_at(first) == 1
