"""Rot where a log is trimmed, on a node whose segments are larger than the leader's, which says where to trim: its log
begins within one, and holds frames that no other node has any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from dledger.common.config import NodeConfig
from dledger.common.types import Consistency, Position
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.debts import owes
from tests.simulation.host import SimHost
from tests.simulation.platter import SimFile
from tests.simulation.process import in_world
from tests.unit.group.rot import append, damage, frames, level, places, replace_disk, rot, rotting, trim, until


@asynccontextmanager
async def beside_large_segments(
    monkeypatch: pytest.MonkeyPatch, *, patients: int = 1
) -> AsyncIterator[tuple[SimulatedCluster, SimHost, SimHost, SimHost]]:
    """The leader, the node with the large segments, and the third one, which may have large ones too."""
    async with rotting(appends=20) as (cluster, (leader, patient, other)):
        config_of, large_ones = cluster.config_of, (patient, other)[:patients]

        def with_large_segments(host: SimHost) -> NodeConfig:
            config = config_of(host)
            large = replace(config.limits, segment_max_bytes=96 * 1024, segment_max_frames=1_000)
            return replace(config, limits=large) if host in large_ones else config

        monkeypatch.setattr(cluster, "config_of", with_large_segments)
        for host in large_ones:
            await host.stop()
            await host.start()
            await level(cluster)
        await append(leader, 250)
        await level(cluster)
        yield cluster, leader, patient, other


async def trim_at_a_boundary(cluster: SimulatedCluster, leader: SimHost, *others: SimHost) -> Position:
    """As far as may be. Returns the last position that is gone."""
    await trim(cluster, leader, leader.replica.log.boundaries()[-1].trim.first_index)
    start = leader.replica.log.state.start
    await until(lambda: all(host.replica.log.state.start == start for host in others))
    return start.position


async def scrub_over_rot(patient: SimHost, doomed: Position) -> None:
    """What is trimmed, and there still, rots; then a whole pass goes by."""
    assert doomed in places(patient)
    rot(patient, doomed)
    passes = patient.replica.metrics.scrub_passes
    await until(lambda: patient.replica.metrics.scrub_passes > passes + 1, within_s=200)


@in_world
async def test_what_rots_before_the_logs_start_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, _):
        doomed = await trim_at_a_boundary(cluster, leader, patient)
        await scrub_over_rot(patient, doomed)
        assert not patient.replica.log.damaged()
        assert patient.replica.core.may_lead


@pytest.mark.parametrize("part", ["header", "body"])
@in_world
async def test_what_is_kept_behind_it_is_served(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, _):
        doomed = await trim_at_a_boundary(cluster, leader, patient)
        file, offset, size_bytes = places(patient)[doomed]
        damage(file, offset + (20 if part == "header" else size_bytes - 60))
        log, reader = patient.replica.log, patient.replica.reader
        forget_cached(patient)
        point = await patient.ask(partial(reader.read_point, Consistency.COMMITTED))
        entry = await patient.ask(partial(reader.get, log.state.first_index, point))
        assert entry.index == log.state.first_index
        assert not log.damaged()
        assert patient.replica.core.may_lead


@in_world
async def test_who_gives_up_its_log_for_it_counts_again_when_it_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start does not know that what rotted was trimmed; its leader tells it. Then what was acknowledged is gone."""
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, other):
        doomed = await trim_at_a_boundary(cluster, leader, patient)
        await patient.stop()
        rot(patient, doomed)
        patient.has_rotted = True
        await patient.start()
        await level(cluster)
        await until(lambda: patient.replica.core.may_vote and not owes(patient))
        assert leader.leads
        assert not leader.replica.core.doubted
        other.crash()
        await append(leader, 1)
        assert frames(patient) == frames(leader)


@in_world
async def test_it_is_not_missed_after_a_restart_either(monkeypatch: pytest.MonkeyPatch) -> None:
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, _):
        doomed = await trim_at_a_boundary(cluster, leader, patient)
        segments = len(patient.replica.log._files.segments)  # type: ignore[attr-defined]
        while len(patient.replica.log._files.segments) == segments:  # type: ignore[attr-defined]
            await append(leader, 20)
            await level(cluster)
        await append(leader, 20)
        await level(cluster)
        await patient.stop()
        await patient.start()
        await level(cluster)
        assert patient.replica.log.state.start.position == doomed
        await scrub_over_rot(patient, doomed)
        assert not patient.replica.log.damaged()
        assert patient.replica.core.may_lead


@in_world
async def test_a_scrub_amid_a_trim_does_not_cost_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, _):
        held, bounds = places(patient), [each.trim for each in leader.replica.log.boundaries()]
        first, second = next(
            (one, other)
            for one, other in pairwise(bounds)
            if held[one.point.position][0] is held[other.point.position][0]
        )
        await trim(cluster, leader, first.first_index)
        await until(lambda: patient.replica.log.state.start == first.point)
        before, log = patient.replica, patient.replica.log
        header_of(held, first.point.position - 1)
        position = Position(first.point.position + 1)
        while position <= log.last.position:
            position = await patient.ask(partial(log.scrub, position))
        assert not log.damaged()
        header_of(held, second.point.position - 3)
        forget_cached(patient)

        async def scrub_slowly() -> None:
            async with log._rewrite_lock.lock:  # type: ignore[attr-defined]
                await asyncio.sleep(2.0)
                await log._scrub.step(Position(first.point.position + 1))  # type: ignore[attr-defined]

        scrubbing = patient.ask(scrub_slowly)
        await asyncio.sleep(0.01)
        await trim(cluster, leader, second.first_index)
        await scrubbing
        await until(lambda: log.state.start == second.point)
        assert patient.replica is before


@in_world
async def test_the_only_voter_goes_on_leading_though_it_cannot_tell_what_it_begins_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, other):
        doomed = await trim_at_a_boundary(cluster, leader, patient, other)
        await leader.ask(lambda: leader.replica.members.remove(other.id))
        await leader.ask(lambda: leader.replica.handover.transfer(patient.id))
        await until(lambda: patient.leads and patient.replica.core.is_ready)
        await patient.ask(lambda: patient.replica.members.remove(leader.id))
        assert set(patient.replica.core.membership.members) == {patient.id}
        header_of(places(patient), doomed - 1)
        patient.has_rotted = True
        learner = cluster.new_host()
        learner.peers = {str(patient.id): patient.address}
        await learner.start()
        await patient.ask(lambda: patient.replica.members.add(learner.id, learner.address))
        await asyncio.sleep(60)
        assert patient.is_up
        await append(patient, 1)


@pytest.mark.parametrize("rotten", [1, 2])
@in_world
async def test_a_learner_that_nobody_can_tell_the_beginning_costs_neither_a_copy_nor_the_leader(
    monkeypatch: pytest.MonkeyPatch, rotten: int
) -> None:
    async with beside_large_segments(monkeypatch, patients=2) as (cluster, away, one, two):
        doomed = await trim_at_a_boundary(cluster, away, one, two)
        await away.ask(lambda: away.replica.handover.transfer(one.id))
        await until(lambda: one.leads and one.replica.core.is_ready)
        await level(cluster)
        away.crash()
        await append(one, 2)
        await until(lambda: one.replica.log.last == two.replica.log.last)
        for host in (one, two)[:rotten]:
            header_of(places(host), doomed - 1)
            host.has_rotted = True
        logs = [host.replica for host in (one, two)]
        learner = cluster.new_host()
        learner.peers = {str(one.id): one.address}
        await learner.start()
        await one.ask(lambda: one.replica.members.add(learner.id, learner.address))
        await asyncio.sleep(40)
        assert [host.replica for host in (one, two)] == logs
        assert cluster.leaders()
        is_level = learner.is_up and learner.replica.log.last == one.replica.log.last
        assert is_level == (rotten == 1)


@in_world
async def test_rot_over_the_beginning_of_the_log_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was trimmed there is no copy any more."""
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, _):
        doomed = await trim_at_a_boundary(cluster, leader, patient)
        before = patient.replica
        rot(patient, doomed, doomed + 1)
        patient.has_rotted = True
        await until(lambda: patient.replica.metrics.repairs > 0, 60)
        await level(cluster)
        assert patient.replica is before
        assert {at: raw for at, raw in frames(patient).items() if at > doomed} == frames(leader)


# The frame that the group trims to is the one that rotted: nobody else keeps it


@asynccontextmanager
async def trimmed_to_rot(
    monkeypatch: pytest.MonkeyPatch, *, other_is_away: bool = False
) -> AsyncIterator[tuple[SimulatedCluster, SimHost, SimHost, SimHost, Position]]:
    """As ``beside_large_segments``, and up to which position all is trimmed."""
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, other):
        if other_is_away:
            other.crash()
            await append(leader, 5)  # acknowledged by the leader and the patient
        doomed = leader.replica.log.boundaries()[-1].trim.point.position
        rot(patient, doomed)
        patient.has_rotted = True
        forget_cached(patient)
        before = patient.replica
        await trim_at_a_boundary(cluster, leader, *([] if other_is_away else [other]))
        yield cluster, leader, patient, other, doomed
        assert patient.replica is before, "the log was given up"


@in_world
async def test_a_trim_to_a_rotten_frame_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with trimmed_to_rot(monkeypatch) as (cluster, leader, patient, _, doomed):
        await level(cluster)
        await until(lambda: patient.replica.log.state.start.position == doomed)
        assert patient.replica.core.may_lead
        assert not owes(patient)
        leader.crash()
        await until(lambda: bool(cluster.leaders()), within_s=60)


@in_world
async def test_what_is_acknowledged_stays_on_two_of_three_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with trimmed_to_rot(monkeypatch, other_is_away=True) as (_, leader, patient, other, doomed):
        committed = leader.replica.core.commit_position
        await asyncio.sleep(60)
        assert set(range(doomed + 1, committed + 1)) <= places(patient).keys()
        leader.crash()
        await other.start()
        await until(lambda: any(host.leads for host in (patient, other)), within_s=120)
        new = next(host for host in (patient, other) if host.leads)
        assert set(range(doomed + 1, committed + 1)) <= places(new).keys()


@in_world
async def test_a_node_that_is_cut_off_keeps_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, other):
        doomed = leader.replica.log.boundaries()[-1].trim.point.position
        rot(patient, doomed)
        patient.has_rotted = True
        forget_cached(patient)
        before, log = patient.replica, patient.replica.log
        trimming = asyncio.create_task(trim_at_a_boundary(cluster, leader, other))
        await until(lambda: log.state.trim is not None and log.state.trim.point.position == doomed, poll_s=0.0005)
        cluster.network.faults.partition([patient.id], [leader.id, other.id])
        await trimming
        await asyncio.sleep(20)
        assert patient.is_up
        assert patient.replica is before


@in_world
async def test_a_voter_whose_admission_lies_behind_what_rotted_still_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three one is gone. ``patient`` is a voter under the disk it has, promoted long ago and committed. What rotted
    was trimmed by the others: only a leader's word ends it, and without its vote there is no leader."""
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, other):
        await replace_disk(leader, patient)
        await append(leader, 60)
        await level(cluster)
        await trim_at_a_boundary(cluster, leader, patient, other)
        await level(cluster)
        await patient.stop()
        rot(patient, min(places(patient)) + 5)
        patient.has_rotted = True
        leader.crash()
        await asyncio.sleep(3)
        await patient.start()
        assert patient.is_recovering
        await until(lambda: bool(cluster.leaders()), within_s=60)


def header_of(held: Mapping[Position, tuple[SimFile, int, int]], position: int) -> None:
    """It rots."""
    file, offset, _ = held[Position(position)]
    damage(file, offset + 20)


def forget_cached(host: SimHost) -> None:
    """Frames are read from the files."""
    host.replica.log._cache.truncate(0)  # type: ignore[attr-defined]
