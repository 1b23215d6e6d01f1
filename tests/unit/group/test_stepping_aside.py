"""A log that is open, and damaged where its leader compares it or has it begin anew: it is closed, and led as one that
was found damaged by a start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from dledger.common.config import Timings
from dledger.common.errors import Code, CorruptLog, error
from dledger.common.types import GENESIS, Durability, Position, Term
from dledger.log.log_api import Damaged, DamagedRange
from dledger.log.segment import writer
from dledger.node.node import Node
from dledger.node.opening import Opener
from dledger.raft.messages import Append, FetchResponse, Heartbeat
from dledger.raft.state import VoteBlocker
from dledger.testing.network_faults import Rule
from tests.simulation import cluster as simulated
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.debts import owes
from tests.simulation.host import SimHost
from tests.simulation.process import in_world
from tests.unit.group.rot import append, append_one, damage, frames, level, rot, rotting, trim, until


async def with_an_own_tail(cluster: SimulatedCluster, patient: SimHost, count: int) -> Position:
    """The patient, cut off, with ``count`` frames that nobody else got; the others have another leader, and went on.
    Returns the last position that is shared."""
    shared, faults = patient.replica.log.last.position, cluster.network.faults
    others = [host for host in cluster.hosts.values() if host is not patient]
    withheld = faults.add(Rule(lambda _source, _target, message: isinstance(message, Append), drop_share=1.0))
    for at in range(count):
        patient.ask(partial(append_one, patient, b"%d" % at)).add_done_callback(asyncio.Future.exception)
        await asyncio.sleep(0.02)
    await until(lambda: patient.replica.log.durable_position == shared + count)
    faults.partition([patient.id], [host.id for host in others])
    faults.remove(withheld)
    await until(lambda: any(host.leads and host.replica.core.is_ready for host in others))
    return shared


def leader_beside(cluster: SimulatedCluster, patient: SimHost) -> SimHost:
    return next(host for host in cluster.leaders() if host is not patient)


async def find_damage(patient: SimHost, *positions: int) -> None:
    rot(patient, *positions)
    patient.has_rotted = True
    await until(lambda: bool(patient.replica.log.damaged()), 60)  # by its scrub


@pytest.mark.parametrize("size", [6, 130], ids=["in the last segment", "in one that is sealed"])
@pytest.mark.parametrize("damaged", [[1], [0, 1]], ids=["its own", "the last that is shared, and its own"])
@in_world
async def test_damage_that_reaches_into_an_own_tail_is_cut_by_the_leaders_word(damaged: list[int], size: int) -> None:
    async with rotting() as (cluster, (patient, *_)):
        shared = await with_an_own_tail(cluster, patient, size)
        leader = leader_beside(cluster, patient)
        await append(leader, 3)
        await find_damage(patient, *(shared + at for at in damaged))
        lives = patient.lives
        cluster.network.mend()
        await level(cluster)
        assert patient.lives == lives
        assert frames(patient) == frames(leader)
        await until(lambda: patient.replica.core.may_vote and not owes(patient))


@in_world
async def test_a_log_that_is_to_begin_anew_is_not_kept_from_it_by_damage_that_goes_too() -> None:
    """Frames that are committed, and trimmed everywhere, are damaged; and the log ends past the start of the leader's,
    with other frames: it is to be cut, and the way to the cut leads over what is damaged."""
    async with rotting(appends=20) as (cluster, (patient, *_)):
        shared = await with_an_own_tail(cluster, patient, 130)
        leader = leader_beside(cluster, patient)
        await append(leader, 300)
        await find_damage(patient, shared - 5)
        before = leader.replica.log.boundaries()[0].trim.first_index
        await trim(cluster, leader, before)
        assert shared < leader.replica.log.state.start.position < patient.replica.log.last.position
        cluster.network.mend()
        await level(cluster)
        assert patient.replica.log.state.start >= leader.replica.log.state.start


@pytest.mark.parametrize("far", [20, 100], ids=["within a step of the scrub", "further into its segment"])
@in_world
async def test_what_was_known_to_be_damaged_is_known_of_the_next_log_too(
    monkeypatch: pytest.MonkeyPatch, far: int
) -> None:
    large = replace(simulated.LIMITS, segment_max_bytes=512 * 1024, segment_max_frames=200)
    monkeypatch.setattr(simulated, "LIMITS", large)
    monkeypatch.setattr(writer, "FIRST_SEGMENT_BYTES", large.segment_max_bytes)
    async with rotting(appends=1, timings=Timings()) as (cluster, (patient, *_)):
        for at in range(140):
            await patient.ask(partial(append_one, patient, b"%05d" % at * 800))
        await level(cluster)
        shared = await with_an_own_tail(cluster, patient, 6)
        await append(leader_beside(cluster, patient), 3)
        before, patient.has_rotted = patient.replica, True
        rot(patient, far, shared, shared + 1)
        scrubbed = Position(1)
        while scrubbed <= before.log.last.position:
            scrubbed = await patient.ask(partial(before.log.scrub, scrubbed))
        await until(lambda: len(before.exchange.repairer.missing) == 2)
        given = Rule(lambda _, to, what: to == patient.id and isinstance(what, FetchResponse), drop_share=1.0)
        cluster.network.faults.add(given)
        cluster.network.faults.heal()
        await until(lambda: patient.is_up and patient.replica is not before)
        await until(lambda: bool(patient.replica.log.damaged()), 5)  # a pass of the scrub takes a week
        assert not patient.replica.core.may_lead


@in_world
async def test_a_leader_that_cannot_tell_what_its_log_begins_with_leaves_it_to_one_that_can() -> None:
    async with rotting(appends=30) as (cluster, (patient, other, away)):
        await away.stop()
        await append(patient, 400)
        await level_without(cluster, away)
        lives, to = patient.lives, patient.replica.log.boundaries()[-1].trim
        rot(patient, to.point.position - 1)
        forget_state(patient, to.point.position)
        await trim(cluster, patient, to.first_index)
        await until(lambda: all(host.replica.log.state.start == to.point for host in (patient, other)))
        assert patient.leads
        before = patient.replica
        await away.start()
        await level(cluster)
        assert other.leads
        assert (patient.lives, patient.replica) == (lives, before), "its log is good behind its beginning"
        assert frames(away) == frames(other)
        assert frames(other).items() <= frames(patient).items()


async def level_without(cluster: SimulatedCluster, away: SimHost) -> None:
    up = [host for host in cluster.hosts.values() if host is not away]
    await until(lambda: len({host.replica.core.commit_position for host in up}) == 1)


def forget_state(host: SimHost, before: Position) -> None:
    """The small state beside the segment that begins behind ``before`` rots."""
    log = host.replica.log
    path = next(each.state_path for each in log._files.segments if each.previous.position == before)  # type: ignore[attr-defined]
    damage(host.platter.find(path), 0, 64)
    host.has_rotted = True


@in_world
async def test_while_it_waits_for_the_leaders_word_it_says_so_and_a_stop_or_a_kill_does_no_harm() -> None:
    async with rotting() as (cluster, (patient, *_)):
        shared = await with_an_own_tail(cluster, patient, 6)
        leader = leader_beside(cluster, patient)
        await find_damage(patient, shared, shared + 1)
        cluster.network.mend()
        await until(lambda: patient.is_recovering, poll_s=0.0001)
        node = patient.life.node
        assert node is not None
        with pytest.raises(CorruptLog, match="being repaired"):
            node.replica("")
        patient.crash(power=False)
        await patient.start()
        await level(cluster)
        assert frames(patient) == frames(leader)


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.01])
@in_world
async def test_a_node_that_is_stopped_while_its_log_is_closed_for_the_leader_stops(after_s: float) -> None:
    async with rotting() as (cluster, (patient, *_)):
        shared = await with_an_own_tail(cluster, patient, 6)
        await find_damage(patient, shared, shared + 1)
        cluster.network.mend()
        await until(lambda: patient.replica._is_shut, poll_s=0.0001)
        await asyncio.sleep(after_s)
        await patient.stop()
        assert patient.is_down
        await patient.start()
        await level(cluster)


@in_world
async def test_a_debt_is_not_forgotten_for_the_log_that_was_closed_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsync, a stop in order settles the debt of the power loss behind it. This stop is not that one. And what
    is not found damaged again is no matter: the log is opened."""
    async with rotting() as (cluster, (_, patient, _)):
        config_of = cluster.config_of
        monkeypatch.setattr(cluster, "config_of", lambda host: replace(config_of(host), durability=Durability.INTERVAL))
        await patient.stop()
        await patient.start()
        await level(cluster)
        await asyncio.sleep(1)
        cluster.network.faults.partition(
            [patient.id], [host.id for host in cluster.hosts.values() if host is not patient]
        )
        patient.crash()
        await patient.start()
        assert VoteBlocker.OWES_CATCH_UP in patient.replica.core.vote_blockers
        first, point = patient.replica, patient.replica.log.last
        node = patient.life.node
        assert node is not None
        damaged = DamagedRange(point.position, point.position, first.log.state.start)
        await patient.ask(partial(_call, node.on_stuck, first.group, Damaged("it is damaged", damaged)))
        await until(lambda: patient.is_up and patient.replica is not first)
        assert VoteBlocker.OWES_CATCH_UP in patient.replica.core.vote_blockers
        assert owes(patient)
        cluster.network.mend()
        await level(cluster)
        await until(lambda: not owes(patient))


async def _call(work: Callable[..., None], *arguments: object) -> None:
    work(*arguments)


async def alone_and_recovering(cluster: SimulatedCluster, patient: SimHost) -> Node:
    """Cut off, with a frame that is damaged and a log that was closed for it."""
    cluster.network.faults.partition([patient.id], [host.id for host in cluster.hosts.values() if host is not patient])
    shared = patient.replica.log.last.position
    await find_damage(patient, shared)
    node, (damaged,) = patient.life.node, patient.replica.log.damaged()
    assert node is not None
    await patient.ask(partial(_call, node.on_stuck, patient.replica.group, Damaged("it is damaged", damaged)))
    await until(lambda: bool(node.groups.recovering))
    return node


@in_world
async def test_a_promise_that_cannot_be_kept_while_its_log_is_closed_ends_the_node() -> None:
    async with rotting() as (cluster, (leader, patient, _)):
        node = await alone_and_recovering(cluster, patient)
        (recovering,) = node.groups.recovering.values()

        async def fail(_state: object) -> None:
            await asyncio.sleep(0.01)
            raise error(Code.DISK_ERROR, "it cannot be written")

        async def promise_and_stop() -> None:
            recovering._effect_runner._saver = SimpleNamespace(save=fail)
            later = Heartbeat(recovering.group, Term(recovering.term + 1), Position(0), 1)
            recovering.on_message(leader.id, later)
            assert recovering._effect_runner.is_holding
            await recovering.stop()

        await patient.ask(promise_and_stop)
        assert (await patient.ask(node.failed)).code is Code.DISK_ERROR


@in_world
async def test_a_bug_on_the_way_to_another_log_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rotting() as (_, (_, patient, _)):

        async def fail(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(Opener, "reopen", fail)
        node = patient.life.node
        assert node is not None
        damaged = DamagedRange(patient.replica.log.last.position, patient.replica.log.last.position, GENESIS)
        await patient.ask(partial(_call, node.on_stuck, patient.replica.group, Damaged("it is damaged", damaged)))
        failure = await patient.ask(node.failed)
        assert failure.code is Code.INTERNAL_ERROR
        assert "a bug" in str(failure)
        monkeypatch.undo()
