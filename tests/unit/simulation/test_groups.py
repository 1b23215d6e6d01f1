"""Several groups on the same machines, each with a judge of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest

from dledger.common.errors import DLedgerError
from dledger.common.types import GENESIS, LogPoint, Position, Term
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.directory import Directory
from tests.simulation.groups import SimGroup
from tests.simulation.process import in_world
from tests.simulation.seat import Seat
from tests.simulation.trace import Trace
from tests.simulation.troubles.scene import Scene
from tests.simulation.violation import Violation
from tests.unit.group.rot import until


@asynccontextmanager
async def two_groups(seed: int = 1) -> AsyncIterator[tuple[SimulatedCluster, Directory, SimGroup]]:
    """Three machines that all have a second group, which is led."""
    cluster = SimulatedCluster(3, seed, Trace())
    scene = Scene(cluster, Random(seed))
    directory = Directory(scene, Random(seed))
    await cluster.start()
    telling = asyncio.ensure_future(directory.run())
    try:
        group = await directory.make(lambda: False)
        assert group is not None
        await until(lambda: all(host.id in group.wanted for host in cluster.hosts.values()))
        await until(lambda: directory.is_done and any(seat.replica.core.is_ready for seat in group.leaders()))
        assert not scene.in_doubt
        yield cluster, directory, group
    finally:
        telling.cancel()
        await cluster.bury()


async def append(seat: Seat, record: bytes) -> None:
    await seat.ask(partial(seat.replica.appender.append_records, [record]))


def test_a_record_of_another_group_is_seen() -> None:
    @in_world
    async def append_it() -> None:
        async with two_groups() as (_, _, group):
            await append(group.leaders()[0], b"@default|of another")

    with pytest.raises(Violation, match="a record stays in its group"):
        append_it()


@in_world
async def test_a_group_is_removed_also_from_a_machine_that_was_away() -> None:
    async with two_groups() as (cluster, directory, group):
        await append(group.leaders()[0], f"@{group.name}|a record".encode())
        away = next(iter(cluster.hosts.values()))
        away.crash()
        directory.remove(group)
        await asyncio.sleep(1)
        await away.start()
        await until(lambda: directory.is_done)
        assert not any(seat.host.platter.paths(seat.directory) for seat in group.seats)
        assert not group.up()
        assert all(seat.is_removed for seat in group.seats)


def test_a_removed_group_that_is_there_again_is_seen() -> None:
    @in_world
    async def open_it() -> None:
        async with two_groups() as (_, directory, group):
            directory.remove(group)
            await until(lambda: directory.is_done)
            seat = group.seats[0]
            node = seat.host.life.node
            assert node is not None
            assert node._identity is not None
            node._identity._record.removed_groups.remove(group.name)
            await seat.ask(partial(node.groups.open, group.name, group.founders))

    with pytest.raises(Violation, match="a removed group stays removed"):
        open_it()


@in_world
async def test_a_removed_group_is_not_opened_by_a_late_word() -> None:
    async with two_groups() as (_, directory, group):
        directory.remove(group)
        await until(lambda: directory.is_done)
        node = group.seats[0].host.life.node
        assert node is not None
        with pytest.raises(DLedgerError, match="removed for good"):
            await group.seats[0].ask(partial(node.groups.open, group.name, group.founders))


@in_world
async def test_a_second_cluster_id_is_seen() -> None:
    async with two_groups() as (cluster, _, group):
        cluster.check()
        assert {seat.replica.log.state.cluster_id for seat in group.up()} == {cluster.id}
        cluster.id = "another"
        with pytest.raises(Violation, match="one cluster id"):
            cluster.check()


@in_world
async def test_a_debt_that_only_another_group_settled_is_seen() -> None:
    async with two_groups() as (cluster, _, group):
        follower = next(seat for seat in group.up() if not seat.leads)
        cluster.network.faults.partition([follower.id], [each for each in cluster.hosts if each != follower.id])
        await follower.ask(follower.replica.owe_catch_up)
        cluster.check()
        node = follower.host.life.node
        assert node is not None
        await follower.ask(node.groups.record(group.name).settle_debt)
        with pytest.raises(Violation, match="a debt is settled by its own group"):
            cluster.check()


@in_world
async def test_an_empty_log_is_no_drop_where_nothing_was_promised_and_nothing_noted() -> None:
    async with two_groups() as (cluster, _, group):
        seat = next(iter(cluster.hosts.values())).seat(group.name)
        seat.is_dropping, seat.promised = True, GENESIS
        seat.drop_was_cut_off()
        assert not seat.is_dropping
        assert not seat.was_dropped


def test_a_drop_that_took_a_promise_without_a_note_is_seen() -> None:
    @in_world
    async def drop_it() -> None:
        async with two_groups() as (cluster, _, group):
            seat = next(iter(cluster.hosts.values())).seat(group.name)
            seat.is_dropping, seat.promised = True, LogPoint(Position(3), Term(1), 7)
            seat.drop_was_cut_off()

    with pytest.raises(Violation, match="a drop is noted first"):
        drop_it()
