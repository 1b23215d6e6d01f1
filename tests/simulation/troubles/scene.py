"""Where trouble is made: the cluster, chance, and what is wrong with it already."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import NamedTuple

from dledger.common.types import Member, NodeId, NodeStart
from dledger.group.replica import Replica
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.platter import Platter
from tests.simulation.process import REFUSALS, GoneError


class Trouble(NamedTuple):
    weight: int
    make: Callable[[], Awaitable[None]]
    is_gentle: bool = False
    """It mends more than it breaks."""
    fewest: int = 1
    """So many machines it takes."""


class Scene:
    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.forgetful: SimHost | None = None
        """Whose disk is not what it was, or rots. One at a time: of two, what one held for the other would be lost."""
        self.backup: tuple[SimHost, NodeStart, Platter] | None = None
        self.tasks: set[asyncio.Task[object]] = set()

    def hit(self, name: str, *details: object) -> None:
        self.cluster.trace.hit(f"fault {name}", *details)

    def begin(self, work: Coroutine[object, object, object], name: str) -> None:
        """Trouble that goes on beside the next."""
        task = self.cluster.world.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.cluster.world.fail(failure)

    def make_peace(self) -> None:
        """All hear each other, and no disk is slow, fails or hangs."""
        self.cluster.network.mend()
        for host in self.cluster.hosts.values():
            host.resume()
            host.mend_disk()

    def cut_off(self, hosts: list[SimHost]) -> None:
        """They hear each other alone."""
        others = [host.id for host in self.cluster.hosts.values() if host not in hosts]
        self.cluster.network.mend()
        self.cluster.network.faults.partition([host.id for host in hosts], others)

    def flip_a_bit(self, host: SimHost, path: str, begin: int, end: int) -> None:
        """One somewhere in these bytes rots."""
        at = self.random.randrange(begin, end)
        host.spoil(path, at, bytes([host.platter.find(path).data[at] ^ 1 << self.random.randrange(8)]))

    def any(self) -> SimHost:
        return self.random.choice(list(self.cluster.hosts.values()))

    def any_up(self) -> SimHost | None:
        up = self.cluster.up()
        return self.random.choice(up) if up else None

    def ids(self) -> list[NodeId]:
        ids = list(self.cluster.hosts)
        self.random.shuffle(ids)
        return ids

    def members(self) -> tuple[Member, ...]:
        leaders = self.cluster.leaders()
        return leaders[0].replica.log.state.members if leaders else ()

    def settled_members(self) -> tuple[Member, ...]:
        """None while a change of them is not committed: of three voters one may not be any yet."""
        leaders = self.cluster.leaders()
        if not leaders or leaders[0].replica.log.state.members_position > leaders[0].replica.core.commit_position:
            return ()
        return leaders[0].replica.log.state.members

    async def ask(
        self, name: str, work: Callable[[Replica], Awaitable[object]], host: SimHost | None = None, timeout_s: float = 3
    ) -> bool:
        """Asks whoever leads, or ``host``; a refusal is an answer."""
        asked = [host] if host is not None else self.cluster.leaders()[:1]
        for each in asked:
            try:
                async with asyncio.timeout(timeout_s):
                    await each.ask(lambda each=each: work(each.replica))  # type: ignore[misc]
            except (*REFUSALS, TimeoutError, GoneError) as refusal:
                self.cluster.trace.note("refused", name, getattr(refusal, "code", type(refusal).__name__))
                return False
            self.hit(name, each.id)
            return True
        return False
