"""A node that may have lost what it acknowledged owes a catch-up: no restart forgets that, and none makes it up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from dledger.common.types import DEFAULT_GROUP, GENESIS, Durability
from dledger.group.group_record import GROUP_RECORD_NAME
from dledger.raft.state import VoteBlocker
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.process import in_world
from tests.simulation.violation import Violation
from tests.unit.group.rot import append_one, rotting, until
from tests.unit.group.test_sole_voter import SLOW_SYNCS, SYNCED_S, UNSYNCED, lose_power, lose_power_alone


async def begin_start(host: SimHost) -> asyncio.Task[None]:
    """The record of its group is saved, and its log not open yet."""
    record = host.platter.find(f"/data/{host.id}/groups/{DEFAULT_GROUP}/{GROUP_RECORD_NAME}")
    before = bytes(record.medium)
    starting = asyncio.ensure_future(host.start())
    await until(lambda: bytes(record.medium) != before, poll_s=0.00001)
    assert host.is_starting
    return starting


def configure(cluster: SimulatedCluster, changed: SimHost, durability: Durability) -> None:
    config_of = cluster.config_of
    cluster.config_of = lambda host: (  # type: ignore[method-assign]
        replace(config_of(host), durability=durability) if host is changed else config_of(host)
    )


@in_world
async def test_what_was_not_synced_is_owed_though_the_configuration_says_fsync_by_now() -> None:
    """Killed, configured to fsync, started; the power goes while it starts. One machine alone loses its power."""
    async with rotting(3, appends=5, durability=Durability.NONE) as (cluster, (leader, patient, other)):
        for host in (leader, patient):
            cluster.network.faults.cut_both(host.id, other.id)
        await leader.ask(partial(append_one, leader, b"acknowledged"))
        await until(lambda: patient.replica.log.last == leader.replica.log.last)
        patient.crash(power=False)
        configure(cluster, patient, Durability.FSYNC)
        starting = await begin_start(patient)
        lose_power(patient)
        await starting
        patient.promised = GENESIS  # that it is owed is what is asked here
        leader.crash(power=False)
        cluster.network.mend()
        await patient.start()
        await asyncio.sleep(10)
        assert not cluster.leaders(), "without what was acknowledged"


@in_world
async def test_a_log_that_was_synced_by_a_start_with_fsync_owes_nothing() -> None:
    async with rotting(1, appends=5, durability=Durability.NONE) as (cluster, (founder,)):
        founder.crash(power=False)
        configure(cluster, founder, Durability.FSYNC)
        await founder.start()
        await until(lambda: founder.leads)
        lose_power(founder)
        await founder.start()
        await until(lambda: founder.leads)


async def flicker(host: SimHost) -> None:
    """It is killed before its log is open: by a supervisor that waits no longer, say."""
    starting = await begin_start(host)
    host.crash(power=False)
    await starting


@UNSYNCED
@in_world
async def test_a_node_that_never_met_another_leads_though_its_first_start_was_killed(durability: Durability) -> None:
    async with rotting(1, appends=5, durability=durability) as (cluster, (founder,)):
        lose_power_alone(cluster, founder)
        await flicker(founder)
        await founder.start()
        await until(lambda: founder.leads)


@UNSYNCED
@in_world
async def test_those_that_were_stopped_in_order_elect_though_their_first_starts_were_killed(
    durability: Durability,
) -> None:
    async with rotting(3, appends=5, durability=durability) as (cluster, hosts):
        for host in hosts:
            await host.stop()
        for host in hosts:
            host._boots += 1  # the machines were off
        for host in hosts[:2]:
            await flicker(host)
        for host in hosts:
            await host.start()
        await until(lambda: bool(cluster.leaders()))


@in_world
async def test_a_debt_outlasts_a_start_that_failed_behind_the_opening_of_the_log() -> None:
    async with rotting(3, appends=5, durability=Durability.INTERVAL, timings=SLOW_SYNCS) as (cluster, hosts):
        leader, patient, _ = hosts
        await asyncio.sleep(SYNCED_S)  # the log keeps the frame that names its cluster
        await leader.ask(partial(append_one, leader, b"not synced"))
        lose_power(patient)
        patient.promised = GENESIS
        config_of = cluster.config_of
        cluster.config_of = lambda host: replace(config_of(host), cluster_id="another")  # type: ignore[method-assign]
        with pytest.raises(Violation, match="belongs to cluster"):
            await patient.start()
        cluster.config_of = config_of  # type: ignore[method-assign]
        isolate(cluster, patient)
        await patient.start()
        assert VoteBlocker.OWES_CATCH_UP in patient.replica.core.vote_blockers


@in_world
async def test_a_start_that_failed_behind_the_opening_of_a_log_that_was_closed_in_order_owes_nothing() -> None:
    async with rotting(3, appends=5, durability=Durability.INTERVAL) as (cluster, hosts):
        for host in hosts:
            await host.stop()
            host._boots += 1  # the machines were off
        config_of = cluster.config_of
        cluster.config_of = lambda host: replace(config_of(host), cluster_id="another")  # type: ignore[method-assign]
        for host in hosts:
            with pytest.raises(Violation, match="belongs to cluster"):
                await host.start()
        cluster.config_of = config_of  # type: ignore[method-assign]
        for host in hosts:
            await host.start()
        await until(lambda: bool(cluster.leaders()))


@in_world
async def test_a_debt_of_one_group_is_not_settled_by_the_log_of_another() -> None:
    async with rotting(3, appends=5, durability=Durability.INTERVAL) as (cluster, (_, patient, _)):
        lose_power(patient)
        patient.promised = GENESIS
        config_of = cluster.config_of
        cluster.config_of = lambda host: replace(config_of(host), group="another")  # type: ignore[method-assign]
        with pytest.raises(Violation, match="belongs to group 'default', not 'another'"):
            await patient.start()
        cluster.config_of = config_of  # type: ignore[method-assign]
        isolate(cluster, patient)
        await patient.start()
        assert VoteBlocker.OWES_CATCH_UP in patient.replica.core.vote_blockers


def isolate(cluster: SimulatedCluster, host: SimHost) -> None:
    cluster.network.faults.partition([host.id], [each for each in cluster.hosts if each != host.id])


@UNSYNCED
@in_world
async def test_a_debt_outlasts_a_later_stop_in_order(durability: Durability) -> None:
    async with rotting(3, appends=5, durability=durability) as (cluster, hosts):
        for host in hosts:
            lose_power(host)
            host.promised = GENESIS
        for _ in range(2):
            for host in hosts:
                await host.start()
            await asyncio.sleep(10)
            assert not cluster.leaders()
            for host in hosts:
                await host.stop()
