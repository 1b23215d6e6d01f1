"""Where trouble is made: the cluster, chance, and what is wrong with it already."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import NamedTuple

from dledger.common.types import NodeId, NodeStart
from dledger.group.replica import Replica
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.groups import SimGroup
from tests.simulation.host import SimHost
from tests.simulation.platter import Platter
from tests.simulation.process import REFUSALS, GoneError
from tests.simulation.seat import Seat

OTHERS_SHARE = 0.4
"""Of the troubles that are made in one group: in another one than the founding."""


class Trouble(NamedTuple):
    weight: float
    make: Callable[[], Awaitable[None]]
    is_gentle: bool = False
    """It mends more than it breaks."""
    fewest: int = 1
    """So many machines it takes."""


class Scene:
    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.in_doubt: dict[str, SimHost] = {}
        """By group: whose disk is not what the group knows. One machine at a time: of two, what one held for the other
        would be lost."""
        self.backup: tuple[SimHost, NodeStart, Platter] | None = None
        self.tasks: set[asyncio.Task[object]] = set()

    @property
    def groups(self) -> list[SimGroup]:
        """Those that were not removed, the founding one first."""
        return [group for group in self.cluster.groups.values() if not group.is_removed]

    def pick(self) -> SimGroup:
        """The group that the next trouble is made in: every second time the founding one."""
        others = self.groups[1:]
        return self.random.choice(others) if others and self.random.random() < OTHERS_SHARE else self.cluster.founding

    @property
    def forgetful(self) -> SimHost | None:
        """Whose disk some group has yet to admit."""
        return next(iter(self.in_doubt.values()), None)

    def doubt(self, host: SimHost) -> None:
        """``host`` has another disk: every group that it is a member of has to admit that."""
        for group in self.groups:
            if group.names(host.id):
                self.in_doubt[group.name] = host

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

    async def ask(
        self,
        name: str,
        asked: SimGroup | Seat,
        work: Callable[[Replica], Awaitable[object]],
        timeout_s: float = 3,
    ) -> bool:
        """Asks whoever leads the group, or one machine of it; a refusal is an answer."""
        for each in [asked] if isinstance(asked, Seat) else asked.leaders()[:1]:
            try:
                async with asyncio.timeout(timeout_s):
                    await each.ask(lambda each=each: work(each.replica))  # type: ignore[misc]
            except (*REFUSALS, TimeoutError, GoneError) as refusal:
                self.cluster.trace.note("refused", name, each.name, getattr(refusal, "code", type(refusal).__name__))
                return False
            self.hit(name, each.name)
            return True
        return False
