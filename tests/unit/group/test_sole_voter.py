"""Who is the only voter by a log that lost its end may be one of many: it asks everybody that it knows."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest

from dledger.common.config import Timings
from dledger.common.types import GENESIS, Durability, Position, Term
from dledger.raft.messages import Append, Compare, Fetch
from dledger.raft.state import VoteBlocker
from dledger.testing.network_faults import Rule
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.process import in_world
from tests.simulation.watch import Watch
from tests.unit.group.rot import (
    append,
    append_one,
    damage,
    learner,
    level,
    places,
    promote,
    promote_and_append,
    rotting,
    until,
)
from tests.unit.group.tails import NOTICED_S, lose, tear

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")

SLOW_SYNCS = Timings(sync_interval_ms=2_000)
SYNCED_S = 4.5
"""More than two intervals of ``SLOW_SYNCS``: everything is synced by then, and what is written next is not yet."""
UNSYNCED = pytest.mark.parametrize("durability", [Durability.NONE, Durability.INTERVAL])


class _NothingSurvives(Random):
    """What a disk draws from. Nothing is written back before a sync, and a power cut keeps only what was synced."""

    def random(self) -> float:
        return 1.0

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        del b
        return a


def write_nothing_back(host: SimHost) -> None:
    """From now on no kernel writes back what was not synced: the next power cut takes all of it."""
    host.platter.random = _NothingSurvives()


def lose_power(host: SimHost) -> None:
    """Of what was not synced nothing survives, but for what the kernel wrote back before."""
    chance = host.platter.random
    write_nothing_back(host)
    host.crash()
    host.platter.random = chance


def lose_power_alone(cluster: SimulatedCluster, host: SimHost) -> None:
    """As ``lose_power``. The watch forgets what was committed, as nobody else was to keep it.

    It still knows the frames: the kernel may have written some of them back before.
    """
    lose_power(host)
    host.promised, known = GENESIS, cluster.watch.chronicle
    cluster.watch = Watch()
    cluster.watch.chronicle._facts.update(known._facts)
    cluster.watch.chronicle._members.update(known._members)


@in_world
async def test_whose_promotion_rotted_behind_the_mark_is_asked_and_leads() -> None:
    async with rotting(1, appends=5) as (cluster, (founder,)):
        host = await learner(cluster, founder)
        await asyncio.sleep(1)
        promoted = await promote_and_append(founder, host)
        acknowledged = founder.replica.log.last
        founder.crash()
        lose(founder, promoted)
        await asyncio.sleep(NOTICED_S)
        await founder.start()
        assert founder.replica.core.membership.voters == {founder.id}, "by what is left"
        await level(cluster)
        for each in (founder, host):
            assert each.replica.core.membership.voters == {founder.id, host.id}
            assert each.replica.log.term_at(acknowledged.position) == acknowledged.term


@in_world
async def test_a_torn_end_keeps_no_sole_voter_from_leading_whose_learner_is_away() -> None:
    async with rotting(1, appends=5) as (cluster, (founder,)):
        host = await learner(cluster, founder)
        host.crash()
        await append(founder, 1)
        founder.crash()
        tear(founder)
        await founder.start()
        assert founder.replica.log.recovery.torn_bytes > 0  # type: ignore[attr-defined]
        await until(lambda: founder.leads, within_s=10)


@UNSYNCED
@in_world
async def test_who_lost_the_promotions_of_others_with_its_power_does_not_lead_beside_them(
    durability: Durability,
) -> None:
    async with rotting(1, appends=5, durability=durability, timings=SLOW_SYNCS) as (cluster, (founder,)):
        others = [await learner(cluster, founder) for _ in range(2)]
        await asyncio.sleep(SYNCED_S)
        write_nothing_back(founder)
        for host in others:
            await founder.ask(partial(founder.replica.members.promote, host.id))
        await append(founder, 3)
        last = founder.replica.log.last
        lose_power(founder)
        await founder.start()
        assert founder.replica.core.membership.voters == {founder.id}, "by what is left"
        await until(lambda: bool(cluster.leaders()))
        (leader,) = cluster.leaders()
        assert leader in others
        await leader.ask(partial(append_one, leader, b"goes on"))
        await level(cluster)
        assert founder.replica.core.membership.voters == {founder.id, *(host.id for host in others)}
        assert founder.replica.log.term_at(last.position) == last.term
        await until(lambda: not founder.replica.core.vote_blockers)


@UNSYNCED
@in_world
async def test_it_waits_for_them_also_behind_another_restart(durability: Durability) -> None:
    async with rotting(1, appends=5, durability=durability, timings=SLOW_SYNCS) as (cluster, (founder,)):
        others = [await learner(cluster, founder) for _ in range(2)]
        await asyncio.sleep(SYNCED_S)
        write_nothing_back(founder)
        for host in others:
            await founder.ask(partial(founder.replica.members.promote, host.id))
        await append(founder, 3)
        for host in others:
            host.crash(power=False)
        lose_power(founder)
        await founder.start()
        await asyncio.sleep(5)
        founder.crash(power=False)
        await founder.start()
        await asyncio.sleep(30)
        assert not founder.leads
        for host in others:
            await host.start()
        await level(cluster)
        assert founder.replica.core.membership.voters == {founder.id, *(host.id for host in others)}


@UNSYNCED
@in_world
async def test_a_sole_voter_that_lost_its_power_and_knows_of_others_waits_for_one_that_leads(
    durability: Durability,
) -> None:
    """As after any loss of a majority's memory: its learner may have been promoted in what is gone."""
    async with rotting(1, appends=5, durability=durability) as (cluster, (founder,)):
        await learner(cluster, founder)
        await asyncio.sleep(1)
        lose_power(founder)
        founder.promised = GENESIS  # nobody else was to keep it
        for _ in range(2):
            await founder.start()
            await asyncio.sleep(30)
            assert not founder.leads
            founder.crash(power=False)


@pytest.mark.parametrize("is_killed", [False, True])
@in_world
async def test_it_is_led_until_it_has_what_the_leader_has(is_killed: bool) -> None:
    """It knows the leader, and asks everybody; what the leader sends does not arrive."""
    async with rotting(1, appends=5, durability=Durability.INTERVAL, timings=SLOW_SYNCS) as (cluster, (founder,)):
        others = [await learner(cluster, founder) for _ in range(2)]
        await asyncio.sleep(SYNCED_S)
        write_nothing_back(founder)
        for host in others:
            await founder.ask(partial(founder.replica.members.promote, host.id))
        (leader, _) = others
        await founder.ask(lambda: founder.replica.handover.transfer(leader.id))
        await until(lambda: leader.leads and leader.replica.core.is_ready)
        await append(leader, 1)
        lose_power(founder)
        faults = cluster.network.faults
        faults.add(Rule(lambda _, to, what: to == founder.id and isinstance(what, Compare | Append), 1.0))
        deaf = faults.add(Rule(lambda source, _, what: source == founder.id and isinstance(what, Fetch), 1.0))
        await founder.start()
        await until(lambda: founder.replica.core.leader_id == leader.id)
        faults.remove(deaf)
        await asyncio.sleep(10)
        if is_killed:
            founder.crash(power=False)
            faults.partition([founder.id], [host.id for host in others])
            await founder.start()
            await asyncio.sleep(3)
        assert founder.replica.core.membership.voters == {founder.id}, "by what is left"
        assert founder.replica.core.vote_blockers == {VoteBlocker.OWES_CATCH_UP}
        assert not founder.leads


@in_world
async def test_whom_it_promoted_it_knows_of_on_the_slowest_disk() -> None:
    async with rotting(1, appends=5, durability=Durability.NONE) as (cluster, (founder,)):
        founder.mood.sync_s = 2.0, 2.0
        others = [cluster.new_host() for _ in range(2)]
        for host in others:
            host.peers = {str(founder.id): founder.address}
            await host.start()
        for host in others:
            await founder.ask(partial(founder.replica.members.add, host.id, host.address))
            await promote(founder, host)
        await append(founder, 1)
        lose_power(founder)
        founder.promised = GENESIS  # that it is owed is what is asked here
        founder.mood.mend()
        await founder.start()
        await asyncio.sleep(5)
        assert not founder.leads


@in_world
async def test_whose_log_rotted_from_before_anybody_joined_is_repaired_by_those_that_it_met() -> None:
    async with rotting(1, appends=5) as (cluster, (founder,)):
        addition = founder.replica.log.last.position + 1
        others = [await learner(cluster, founder) for _ in range(2)]
        for host in others:
            await founder.ask(partial(founder.replica.members.promote, host.id))
        await append(founder, 3)
        await asyncio.sleep(1)  # a mark covers it
        founder.crash()
        where = places(founder)
        for position in range(addition, max(where) + 1):
            file, offset, size_bytes = where[Position(position)]
            damage(file, offset, size_bytes)
        founder.has_rotted = True
        await asyncio.sleep(NOTICED_S)
        await founder.start()
        assert founder.is_recovering
        await level(cluster)


@in_world
async def test_a_node_that_never_met_another_leads_at_once() -> None:
    async with rotting(1, appends=5, durability=Durability.NONE) as (cluster, (founder,)):
        lose_power_alone(cluster, founder)
        await founder.start()
        await until(lambda: founder.leads)


async def hear_alone(cluster: SimulatedCluster, founder: SimHost, other: SimHost) -> None:
    """``other`` loses its power, and the two hear each other alone for a while; then it is caught up."""
    lose_power(other)
    rest = [host.id for host in cluster.hosts.values() if host not in (founder, other)]
    cluster.network.faults.partition([founder.id, other.id], rest)
    for host in (founder, other):
        await host.start()
    await asyncio.sleep(5)
    cluster.network.mend()
    await until(lambda: bool(cluster.leaders()) and not other.replica.core.vote_blockers)


@in_world
async def test_the_word_of_one_that_lost_its_own_end_says_nothing() -> None:
    """The founder was removed, and nobody tells it; the others lose their power one behind the other."""
    async with rotting(1, appends=5, durability=Durability.NONE) as (cluster, (founder,)):
        first, second = [await learner(cluster, founder) for _ in range(2)]
        for host in (first, second):
            await founder.ask(partial(founder.replica.members.promote, host.id))
        await founder.ask(lambda: founder.replica.handover.transfer(first.id))
        await until(lambda: first.leads and first.replica.core.is_ready)
        lose_power(founder)
        third = cluster.new_host()
        third.peers = {str(first.id): first.address}
        await third.start()
        await first.ask(lambda: first.replica.members.add(third.id, third.address))
        await until(lambda: third.replica.log.last == first.replica.log.last)
        await first.ask(lambda: first.replica.members.promote(third.id))
        await first.ask(lambda: first.replica.members.remove(founder.id))
        await until(lambda: second.replica.core.commit_position == third.replica.core.commit_position)
        await hear_alone(cluster, founder, second)
        await hear_alone(cluster, founder, first)
        assert not founder.leads
        assert founder.replica.core.vote_blockers


@in_world
async def test_who_is_elected_tells_the_term_that_it_leads() -> None:
    """Its disk is slow to take its vote."""
    async with rotting(1) as (cluster, (only,)):
        await learner(cluster, only)
        only.crash()
        await asyncio.sleep(NOTICED_S)
        only.mood.sync_s = (0.2, 0.2)
        await only.start()
        told = list[tuple[Term, Term]]()

        def leads() -> bool:
            replica = only.replica
            told.append((replica.term, replica.core.term if replica.leads else replica.term))
            return replica.leads

        await until(leads, poll_s=0.0005)
        assert not [terms for terms in told if terms[0] != terms[1]]
