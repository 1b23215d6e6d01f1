"""Rot where a log is trimmed, on a node whose segments are larger than the leader's, which says where to trim: its log
begins within one, and holds frames that no other node has any more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from dledger.config import NodeConfig
from dledger.types import Consistency, Position
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.debts import owes
from tests.simulation.host import SimHost
from tests.simulation.process import in_world
from tests.unit.server.rot import append, damage, frames, level, places, rot, rotting, trim, until


@asynccontextmanager
async def beside_large_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[SimulatedCluster, SimHost, SimHost, SimHost]]:
    """The leader, the node with the large segments, and the third one."""
    async with rotting(appends=20) as (cluster, (leader, patient, other)):
        config_of = cluster.config_of

        def with_large_segments(host: SimHost) -> NodeConfig:
            config = config_of(host)
            large = replace(config.limits, segment_max_bytes=96 * 1024, segment_max_frames=1_000)
            return replace(config, limits=large) if host is patient else config

        monkeypatch.setattr(cluster, "config_of", with_large_segments)
        await patient.stop()
        await patient.start()
        await append(leader, 250)
        await level(cluster)
        yield cluster, leader, patient, other


async def trim_at_a_boundary(cluster: SimulatedCluster, leader: SimHost, *others: SimHost) -> Position:
    """As far as may be. Returns the last position that is gone."""
    await trim(cluster, leader, leader.replica.log.boundaries()[-1].trim.first_index)
    start = leader.replica.log.state.start
    await until(lambda: all(host.replica.log.state.start == start for host in others))
    return start.position


@in_world
async def test_what_rots_before_the_logs_start_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, _):
        doomed = await trim_at_a_boundary(cluster, leader, patient)
        assert doomed in places(patient)
        rot(patient, doomed)
        passes = patient.replica.metrics.scrub_passes
        await until(lambda: patient.replica.metrics.scrub_passes > passes + 1, within_s=200)
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
        log._cache.truncate(0)  # type: ignore[attr-defined]
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
async def test_who_cannot_tell_where_it_is_to_begin_takes_the_log_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame that the group trims to is the one that rotted, and nobody else keeps it."""
    async with beside_large_segments(monkeypatch) as (cluster, leader, patient, other):
        doomed = leader.replica.log.boundaries()[-1].trim.point.position
        rot(patient, doomed)
        patient.has_rotted = True
        patient.replica.log._cache.truncate(0)  # type: ignore[attr-defined]
        await trim_at_a_boundary(cluster, leader, other)
        await append(leader, 20)
        await level(cluster)
        assert patient.replica.log.state.start.position == doomed
        await until(lambda: patient.replica.core.may_lead and not owes(patient))
        assert not leader.replica.core.doubted
