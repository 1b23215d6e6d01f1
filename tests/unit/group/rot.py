"""Three real nodes on simulated disks, and disks that rot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from dledger.common.config import Timings
from dledger.common.errors import ChangeRefused
from dledger.common.types import Durability, Position
from dledger.log.file_log import FileLog
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.platter import SimFile
from tests.simulation.trace import Trace
from tests.simulation.truth import stored_frames
from tests.support.scenario import SCENARIO_SEED

POLL_S = 0.01


@asynccontextmanager
async def rotting(
    size: int = 3,
    *,
    appends: int = 60,
    timings: Timings | None = None,
    durability: Durability = Durability.FSYNC,
) -> AsyncIterator[tuple[SimulatedCluster, list[SimHost]]]:
    """A cluster whose logs of ``appends`` frames are level, and marked to their ends if they are synced; its machines
    with the leader first."""
    cluster = SimulatedCluster(size, SCENARIO_SEED, Trace(), durability=durability)
    cluster.timings = timings or cluster.timings
    await cluster.start()
    try:
        await until(lambda: any(host.leads and host.replica.core.is_ready for host in cluster.up()))
        leader = cluster.leaders()[0]
        await append(leader, appends)
        await level(cluster)
        if cluster.is_synced:
            await marked(*cluster.up())
        yield cluster, [leader, *(host for host in cluster.hosts.values() if host is not leader)]
    finally:
        await cluster.bury()


async def leave_constrained(cluster: SimulatedCluster, hosts: list[SimHost], *, appends: int) -> list[SimHost]:
    """All of five are down, the second without what the others appended last; when it starts with two of those, they
    do not reach each other. Returns the two, by id."""
    leader, middle, *rest = hosts
    ends = sorted(rest, key=lambda host: host.id)[:2]
    middle.crash(power=False)
    await append(leader, appends)
    last = leader.replica.log.last.position
    await until(lambda: all(host.replica.core.commit_position == last for host in ends))
    for host in (leader, *rest):
        await host.stop()
    cluster.network.faults.cut_both(*(host.id for host in ends))
    return ends


async def append(leader: SimHost, count: int) -> None:
    for at in range(count):
        await leader.ask(partial(append_one, leader, b"%05d" % at * 30))


async def append_one(leader: SimHost, record: bytes) -> None:
    await leader.replica.appender.append_records([record])


async def trim(cluster: SimulatedCluster, leader: SimHost, before_index: int) -> None:
    """By hand, and the watch is told of it."""
    cluster.watch.deletion.ask(before_index)
    await leader.ask(lambda: leader.replica.retention.trim(before_index))


async def until(holds: Callable[[], bool], within_s: float = 30.0, *, poll_s: float = POLL_S) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 – what is waited for is many nodes' state
            await asyncio.sleep(poll_s)


async def level(cluster: SimulatedCluster) -> None:
    """Everybody is up, holds the same, undamaged, and knows it committed."""

    def is_level() -> bool:
        hosts = cluster.hosts.values()
        if not all(host.is_up and not host.replica.log.damaged() for host in hosts) or not cluster.leaders():
            return False
        points = {(host.replica.log.last, host.replica.core.commit_position) for host in hosts}
        return len(points) == 1 and all(last.position == commit for last, commit in points)

    await until(is_level)


async def marked(*hosts: SimHost) -> None:
    """Until a durable sync mark of each names the end of its log: rot below it is not taken for a torn write."""

    def is_marked(host: SimHost) -> bool:
        log = host.replica.log
        assert isinstance(log, FileLog)
        commit = log._commit
        return commit._marked.sequence == log.last.position and not commit._dirty and not commit._in_flight

    await until(lambda: all(is_marked(host) for host in hosts))


def segments(host: SimHost) -> list[SimFile]:
    """The files of its log, in order."""
    names = host.platter._names
    return [names[path] for path in sorted(names) if path.endswith(".log")]


def places(host: SimHost) -> dict[Position, tuple[SimFile, int, int]]:
    """Where each frame lies: file, offset, size. All of them must be good."""
    found = {}
    for file in segments(host):
        for position, begin, end in stored_frames(file.data):
            found[position] = (file, begin, end - begin)
    return found


def damage(file: SimFile, offset: int, size_bytes: int = 1) -> None:
    """Flips bits where they lie, in memory and on the medium."""
    for content in (file.data, file.medium):
        for at in range(offset, min(offset + size_bytes, len(content))):
            content[at] ^= 0x55


def rot(host: SimHost, *positions: int, part: float = 0.5) -> None:
    """Damages these frames, each at ``part`` of its length."""
    where = places(host)
    for position in positions:
        file, offset, size_bytes = where[Position(position)]
        damage(file, offset + int(part * (size_bytes - 1)))


def frames(host: SimHost) -> dict[Position, bytes]:
    """The stored bytes of every frame."""
    return {at: bytes(file.data[offset : offset + size]) for at, (file, offset, size) in places(host).items()}


async def learner(cluster: SimulatedCluster, founder: SimHost) -> SimHost:
    host = cluster.new_host()
    host.peers = {str(founder.id): founder.address}
    await host.start()
    await founder.ask(partial(founder.replica.members.add, host.id, host.address))
    await level(cluster)
    return host


async def promote(founder: SimHost, host: SimHost) -> None:
    """As soon as it has caught up."""
    async with asyncio.timeout(30):
        while True:
            try:
                await founder.ask(partial(founder.replica.members.promote, host.id))
            except ChangeRefused:
                await asyncio.sleep(0.005)
            else:
                return


async def replace_disk(leader: SimHost, host: SimHost) -> None:
    """By an empty one, which is readmitted and promoted."""
    host.crash()
    host.wipe()
    await host.start()
    await until(lambda: host.replica.log.last == leader.replica.log.last)
    await leader.ask(partial(leader.replica.members.readmit, host.id))
    await promote(leader, host)


async def promote_and_append(founder: SimHost, host: SimHost) -> Position:
    """So soon behind each other that no mark covers them yet, only a record before them; acknowledged. Returns where
    the promotion lies."""
    before = founder.replica.log.last.position

    async def both() -> None:
        promoted = asyncio.ensure_future(founder.replica.members.promote(host.id))
        await append_one(founder, b"before")
        await until(lambda: founder.replica.log.last.position > before + 1, poll_s=0.00001)
        await asyncio.gather(promoted, append_one(founder, b"behind"))

    await founder.ask(both)
    return Position(before + 2)
