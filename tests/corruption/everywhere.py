"""Rot on all of three nodes at once: of every frame one good copy is left, on any of them.

Every assignment of the frames of a short log to the node that keeps its good copy has a cluster of its own, that has
lost power, or was shut down, before its disks rotted. The nodes give each other what they lack, and elect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import product
from random import Random
from typing import NamedTuple

from dledger.common.errors import CorruptLog
from dledger.common.types import Position
from dledger.log.log_api import Damaged
from tests.corruption.expected import Outcome
from tests.corruption.outcome import everything
from tests.corruption.three_nodes import IDLE_S, check_logs, judged, log_of, started, three_nodes
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.unit.group.rot import append, damage, frames, level, places, until

NODES = 3
FRAMES = 6
"""In two segments: the members', the leader's first, and what is appended."""
ABOVE_THE_MARK = 1
PARTS = (0.0, 0.1, 0.5, 0.9)
"""Of a frame's length, where it is damaged: in its header, or in its body."""


class Assignment(NamedTuple):
    """Who keeps the good copy of each frame."""

    good: tuple[int, ...]
    """By position, a node's number."""
    has_lost_power: bool
    """The last frames lie above the sync mark. Otherwise the nodes were shut down."""

    @property
    def structure(self) -> str:
        """The line of the table that it belongs to."""
        lacking = NODES - (len(set(self.good)) == 1)
        return f"{lacking} of three nodes lack frames, {'after a power cut' if self.has_lost_power else 'shut down'}"

    def __str__(self) -> str:
        return f"{self.structure}; good copies are on {self.good}"


def assignments() -> Iterator[Assignment]:
    """All of them."""
    for good in product(range(NODES), repeat=FRAMES):
        for has_lost_power in (True, False):
            yield Assignment(good, has_lost_power)


def outcome_everywhere(case: Assignment) -> tuple[Outcome, str]:
    """What it comes to, and what is wrong, if anything is."""
    return judged(_outcome_of(case))


async def _outcome_of(case: Assignment) -> tuple[Outcome, str]:
    cluster = three_nodes()
    try:
        return await _outcome(cluster, case)
    except (AssertionError, CorruptLog, TimeoutError) as wrong:
        return Outcome.WRONG, f"{type(wrong).__name__}: {wrong}; {cluster.describe()}"
    finally:
        await cluster.bury()


async def _outcome(cluster: SimulatedCluster, case: Assignment) -> tuple[Outcome, str]:
    leader = await started(cluster)
    await append(leader, FRAMES - ABOVE_THE_MARK - log_of(leader).last.position)
    await level(cluster)
    await asyncio.sleep(IDLE_S)
    await append(leader, ABOVE_THE_MARK)
    hosts = cluster.hosts.values()
    await until(lambda: all(host.replica.log.durable_position == FRAMES for host in hosts), poll_s=0.0001)
    stored = frames(leader)
    for host in hosts:
        if case.has_lost_power:
            host.crash()
        else:
            await host.stop()
    _rot(cluster, case)
    for host in hosts:
        await host.start()
    await level(cluster)
    for host in hosts:
        await _read(cluster, host)
    held = await check_logs(cluster)
    assert held[:FRAMES] == tuple(stored.values()), "what comes back is not what was stored"
    return Outcome.REPAIRED, ""


async def _read(cluster: SimulatedCluster, host: SimHost) -> None:
    """What no start has looked at is found by who reads it: it is refused, and then repaired."""
    for _ in range(FRAMES):
        try:
            await host.ask(lambda: everything(log_of(host)))
        except Damaged:
            await level(cluster)
        else:
            return


def _rot(cluster: SimulatedCluster, case: Assignment) -> None:
    chance = Random(repr(case))
    for number, host in enumerate(cluster.hosts.values()):
        found = places(host)
        for position, good in enumerate(case.good, 1):
            if number != good:
                file, offset, size_bytes = found[Position(position)]
                damage(file, offset + int(chance.choice(PARTS) * size_bytes))
                host.lost_tail |= case.has_lost_power and position > FRAMES - ABOVE_THE_MARK
