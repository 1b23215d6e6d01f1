"""Clusters of which a node has cut the end of its log."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

from dledger.common.types import GENESIS, Position
from dledger.log.frame.frame import HEADER_BYTES, Frame
from dledger.log.segment.segment import FIRST_PAGE_BYTES
from dledger.raft.messages import (
    Fetch,
    FetchResult,
)
from dledger.testing.network_faults import Rule
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.unit.group.rot import (
    append,
    append_one,
    damage,
    places,
    segments,
    until,
)

BEFORE_A_MARK_S = 0.0005
CONNECTED_S = 0.05
"""Longer than two nodes that are up take to connect."""
NOTICED_S = 3.0
"""So long after a power cut the others have given up their connections, and take new ones."""


async def cut_short(leader: SimHost, patient: SimHost) -> Position:
    """Both lose power right after ``patient`` acknowledged a frame that no mark covers yet; there it rots."""
    await append(leader, 1)
    last = leader.replica.log.last.position
    await until(lambda: patient.replica.log.durable_position == last)
    leader.crash()
    patient.crash()
    lose(patient, last)
    return last


def lose(host: SimHost, last: Position) -> None:
    """What it acknowledged a moment ago rots, where no mark covers it yet."""
    file, offset, _ = places(host)[last]
    damage(file, offset + HEADER_BYTES + 4)
    host.promised = GENESIS  # rot takes what no crash may take
    host.has_rotted = host.lost_tail = True


def tear(host: SimHost) -> None:
    """As a write that the power cut: bytes behind the last frame that are none."""
    file = segments(host)[-1]
    last = max(places(host).values(), key=lambda place: (place[0] is file, place[1]))
    end = last[1] + last[2] if last[0] is file else FIRST_PAGE_BYTES
    damage(file, end, 40)


async def cut_and_noticed(host: SimHost) -> None:
    """It is without power, with a torn write, and the others go on."""
    host.crash()
    tear(host)
    await asyncio.sleep(NOTICED_S)


async def doubt(host: SimHost, other: SimHost) -> None:
    """It has seen that ``other`` lost something, before."""
    assert host.life is not None
    assert host.life.node is not None
    host.life.node.on_lost_frames(host.replica.group, other.id)
    await host.life.node.keep_peers()


async def make_learner(leader: SimHost, patient: SimHost) -> None:
    await leader.replica.members.remove(patient.id)
    await leader.replica.members.add(patient.id, patient.address)


async def with_two_branches(cluster: SimulatedCluster, hosts: list[SimHost]) -> Position:
    """All down. The first has a frame that nobody else got; the third has another one there, of a later term, that was
    committed with the patient's help, and the patient has lost it. Returns its position."""
    old, patient, right = hosts
    branch = Position(old.replica.log.last.position + 1)
    cluster.network.faults.partition([old.id], [patient.id, right.id])
    doomed = old.ask(partial(append_one, old, b"never acknowledged"))
    await until(lambda: old.replica.log.durable_position == branch)
    old.crash()
    assert doomed.exception() is not None
    patient.replica.core.set_may_lead(False, patient.life.process.time() * 1000)
    await until(lambda: cluster.watch.chronicle.commit_position >= branch, poll_s=BEFORE_A_MARK_S)
    assert right.leads
    assert patient.replica.log.durable_position == branch
    right.crash()
    patient.crash()
    lose(patient, branch)
    cluster.network.mend()
    return branch


async def start_idle(host: SimHost) -> None:
    """It does not stand, for now."""
    await host.start()
    host.replica.core.set_may_lead(False, host.life.process.time() * 1000)


def let_answers_arrive(cluster: SimulatedCluster, patient: SimHost) -> Rule:
    """To be called before ``patient`` starts. Delays its FETCHes until whoever is asked is connected back to it.

    An answer without a connection is lost. The question then times out, later than a TailQuery stops to wait for
    everybody.
    """
    return cluster.network.faults.add(
        Rule(lambda source, _, what: source == patient.id and isinstance(what, Fetch), delay_s=CONNECTED_S)
    )


def begin_behind_the_end_of_others(host: SimHost) -> None:
    """It gives its frames to nobody, as if all were trimmed by now."""
    server, log = host.replica.exchange._server, host.replica.log
    real, start = server._read, log.last
    assert start.position > 0

    async def read(ask: Fetch) -> tuple[FetchResult, tuple[Frame, ...]]:
        return (FetchResult.TRIMMED, ()) if ask.previous.position < start.position else await real(ask)

    server._read = read  # type: ignore[method-assign]
    server._log = SimpleNamespace(read=log.read, last=start, state=SimpleNamespace(start=start), voters=log.voters)


def forbid(host: SimHost) -> None:
    host.replica.core.set_may_lead(False, host.life.process.time() * 1000)


def allow(host: SimHost) -> None:
    host.replica.core.set_may_lead(True, host.life.process.time() * 1000)
