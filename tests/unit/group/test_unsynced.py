"""What is acknowledged without a sync survives the power loss of any minority, whoever becomes a member or leaves.

A cluster grows from one machine. Whoever loses its power, a majority of the voters is left that lacks nothing; the
watch sees to it that nothing committed is ever missing from a leader's log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import pytest

from dledger.common.errors import DLedgerError
from dledger.common.types import Durability, Index
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.process import GoneError, in_world
from tests.unit.group.rot import rotting, until

STEPS = 100
MOST_MEMBERS = 5
ASKED_S = 3.0


class Operator:
    """Does something, whatever is under way, and remembers what was acknowledged."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self._cluster = cluster
        self._random = Random(seed)
        self._numbers = iter(range(1_000_000))
        self.acknowledged: dict[Index, bytes] = {}
        self.power_cuts = self.promotions = 0

    async def act(self) -> None:
        changes = (self._add, self._add, self._promote, self._promote, self._promote, self._remove, self._transfer)
        power = (self._cut_power, self._cut_power, self._cut_power, self._kill, self._start, self._start, self._start)
        await self._random.choice((self._append, self._append, *changes, *power))()
        await asyncio.sleep(self._random.choice((0.0, 0.001, 0.1, 1.0)))

    @property
    def _leader(self) -> SimHost | None:
        return next(iter(self._cluster.leaders()), None)

    async def _ask(self, work: Callable[[SimHost], Awaitable[object]]) -> bool:
        leader = self._leader
        if leader is None:
            return False
        try:
            async with asyncio.timeout(ASKED_S):
                await leader.ask(partial(work, leader))
        except (DLedgerError, TimeoutError, GoneError):
            return False  # an answer, or none: what it was asked for may have happened
        return True

    async def _append(self) -> None:
        async def append(leader: SimHost) -> None:
            record = b"%d" % next(self._numbers)
            result = await leader.replica.appender.append_records([record])
            self.acknowledged[Index(result.base_index)] = record

        for _ in range(self._random.randrange(1, 6)):
            await self._ask(append)

    async def _add(self) -> None:
        if len(self._cluster.hosts) >= MOST_MEMBERS or (leader := self._leader) is None:
            return
        host = self._cluster.new_host()
        host.peers = {str(each.id): each.peer_address for each in leader.replica.log.state.members}
        await host.start()
        await self._ask(lambda leader: leader.replica.members.add(host.id, host.address))

    def _members(self) -> list[SimHost]:
        """When nobody lacks anything: who loses its power a moment before a change may leave no majority behind it."""
        leader = self._leader
        members = leader.replica.log.state.members if leader is not None else ()
        hosts = [self._cluster.hosts[member.id] for member in members]
        return hosts if all(host.is_up and not host.replica.core.vote_blockers for host in hosts) else []

    async def _promote(self) -> None:
        for host in self._members():
            if not host.replica.core.is_voter:
                asked = await self._ask(partial(_promote, host))
                self.promotions += asked
                return

    async def _remove(self) -> None:
        members = self._members()
        if len(members) > 3:
            await self._ask(partial(_remove, self._random.choice(members)))

    async def _transfer(self) -> None:
        await self._ask(lambda leader: leader.replica.handover.transfer(None))

    async def _kill(self) -> None:
        up = self._cluster.up()
        if up:
            self._random.choice(up).crash(power=False)

    async def _start(self) -> None:
        for host in self._cluster.down():
            await host.start()

    async def _cut_power(self) -> None:
        """Of the leader, or of another, where a majority of the voters is left that lacks nothing: of those before a
        change that is under way, too."""
        leader = self._leader
        if leader is None:
            return
        hosts = self._cluster.up()
        victim = leader if self._random.random() < 0.5 else self._random.choice(hosts)
        left = {host.id for host in hosts if not host.replica.core.vote_blockers} - {victim.id}
        state, core = leader.replica.log.state, leader.replica.core
        is_settled = state.members_position <= core.commit_position
        memberships = [host.replica.core.membership for host in ([leader] if is_settled else hosts)]
        if all(each.is_quorum(left) for each in memberships):
            victim.platter.random.choice = lambda options: options[0]  # type: ignore[assignment, method-assign]
            victim.crash()
            self.power_cuts += 1
            if self._random.random() < 0.5:
                await victim.start()

    async def rest(self) -> None:
        """Every member is up, and owes nothing."""
        await self._start()
        await until(self._is_level, within_s=60)

    def _is_level(self) -> bool:
        leader = self._leader
        members = leader.replica.log.state.members if leader is not None else ()
        hosts = [self._cluster.hosts[member.id] for member in members]
        if not hosts or not all(host.is_up and not host.replica.core.vote_blockers for host in hosts):
            return False
        return len({(host.replica.log.last, host.replica.core.commit_position) for host in hosts}) == 1

    async def check(self) -> None:
        (leader,) = self._cluster.leaders()
        for index, record in self.acknowledged.items():
            frame = await leader.ask(partial(leader.replica.log.frame_of, index))
            assert frame.entry(index).value == record


async def _promote(host: SimHost, leader: SimHost) -> None:
    await leader.replica.members.promote(host.id)


async def _remove(host: SimHost, leader: SimHost) -> None:
    await leader.replica.members.remove(host.id)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("durability", [Durability.NONE, Durability.INTERVAL])
@in_world
async def test_nothing_acknowledged_is_lost_with_the_power_of_a_minority(durability: Durability, seed: int) -> None:
    async with rotting(1, appends=2, durability=durability) as (cluster, _):
        operator = Operator(cluster, seed)
        for _ in range(STEPS):
            await operator.act()
        await operator.rest()
        await operator.check()
        assert operator.power_cuts
        assert operator.promotions
        assert operator.acknowledged
