"""A log is closed for another one while the node runs: what was said of the old one stays true, and nothing of it is
left behind or forgotten."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dledger.common.config import Timings
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import DEFAULT_GROUP, Consistency, Member, NodeId, NodeStart, Position
from dledger.log.file_log import FileLog
from dledger.raft.messages import FetchResponse
from dledger.testing.network_faults import Rule
from tests.simulation.disk import Trap
from tests.simulation.host import SimHost
from tests.simulation.process import in_world
from tests.unit.group.rot import append, frames, level, rot, rotting, trim, until
from tests.unit.group.test_stepping_aside import find_damage, leader_beside, with_an_own_tail


def opened(host: SimHost) -> list[str]:
    """What stands there for the group, one after the other, from now on."""
    node, names = host.life.node, list[str]()
    assert node is not None
    take = node.groups.take

    def on_take(replica: object) -> None:
        names.append(type(replica).__name__)
        take(replica)  # type: ignore[arg-type]

    node.groups.take = on_take  # type: ignore[method-assign]
    return names


def open_files(log: object) -> int:
    assert isinstance(log, FileLog)
    return sum(segment.handle is not None for segment in log._files.segments)


@pytest.mark.parametrize("is_known", [True, False], ids=["found by a scrub", "found by the cut"])
@in_world
async def test_a_node_that_stepped_aside_counts_again_when_it_has_caught_up(is_known: bool) -> None:
    """It has acknowledged nothing that it then lacks: with it the leader has a quorum when the third node is gone."""
    async with rotting() as (cluster, (patient, *others)):
        shared = await with_an_own_tail(cluster, patient, 6)
        leader = leader_beside(cluster, patient)
        await append(leader, 3)
        if is_known:
            await find_damage(patient, shared, shared + 1)
        else:
            rot(patient, shared, shared + 1)
            patient.has_rotted = True
        cluster.network.mend()
        await level(cluster)
        await until(lambda: patient.replica.core.may_vote)
        assert not leader.replica.core.doubted
        next(host for host in others if host is not leader).crash(power=False)
        await until(lambda: bool(cluster.leaders()))
        async with asyncio.timeout(20):
            await append(cluster.leaders()[0], 1)


@pytest.mark.parametrize("position", [1, 2])
@in_world
async def test_a_log_whose_first_frames_are_damaged_begins_anew_in_one_swap(position: int) -> None:
    async with rotting(appends=20) as (cluster, (patient, *_)):
        names = opened(patient)
        shared = await with_an_own_tail(cluster, patient, 600)
        leader = leader_beside(cluster, patient)
        await append(leader, 300)
        await find_damage(patient, position)
        before = leader.replica.log.boundaries()[0].trim.first_index
        await trim(cluster, leader, before)
        assert shared < leader.replica.log.state.start.position < patient.replica.log.last.position
        cluster.network.mend()
        await level(cluster)
        assert names in ([], ["RecoveringReplica", "Replica"])


@in_world
async def test_a_log_that_could_not_be_closed_in_order_is_not_opened_again() -> None:
    async with rotting() as (cluster, (patient, *_)):
        names = opened(patient)
        shared = await with_an_own_tail(cluster, patient, 6)
        await find_damage(patient, shared, shared + 1)
        node = patient.life.node
        assert node is not None
        cluster.network.mend()
        await until(lambda: patient.replica._is_shut, poll_s=0.0001)
        patient.mood.fails_next_sync = True
        assert (await patient.ask(node.failed)).code is Code.DISK_ERROR
        await asyncio.sleep(3)
        assert names == []


@pytest.mark.parametrize("ordinal", [1, 3, 8, 20])
@pytest.mark.parametrize("kind", ["trap", "read_trap"])
@in_world
async def test_a_disk_that_fails_amid_a_swap_ends_the_node_or_does_no_harm(kind: str, ordinal: int) -> None:
    async with rotting() as (cluster, (patient, *_)):
        shared = await with_an_own_tail(cluster, patient, 6)
        await find_damage(patient, shared, shared + 1)
        node, sprung = patient.life.node, list[bool]()
        assert node is not None
        assert node._failed is not None
        cluster.network.mend()
        await until(lambda: patient.replica._is_shut, poll_s=0.0001)
        setattr(patient.mood, kind, Trap(ordinal, lambda: sprung.append(True)))
        await asyncio.sleep(8)
        assert sprung
        assert node._failed.done() or (patient.is_up and not patient.replica.log.damaged())
        setattr(patient.mood, kind, None)
        patient.crash(power=False)


@in_world
async def test_a_reader_of_a_log_that_was_closed_is_told_and_opens_none_of_its_files() -> None:
    async with rotting(appends=600) as (cluster, (patient, *_)):
        shared = await with_an_own_tail(cluster, patient, 6)
        await find_damage(patient, shared, shared + 1)
        first = patient.replica
        point = await patient.ask(partial(first.reader.read_point, Consistency.COMMITTED))
        stream = first.reader.read(0, None, point, follow=True)
        await patient.ask(partial(anext, stream))
        cluster.network.mend()
        await until(lambda: first._is_shut, poll_s=0.0001)
        await level(cluster)
        assert patient.replica is not first
        for ask in (partial(anext, stream), partial(first.reader.get, 3, point)):
            with pytest.raises(DLedgerError) as refused:
                await patient.ask(ask)
            assert refused.value.code is Code.CORRUPT_LOG
        with pytest.raises(DLedgerError) as refused:
            await patient.ask(partial(first.log.read, Position(1), 1000))
        assert refused.value.code is Code.SHUTTING_DOWN
        assert not open_files(first.log)


@in_world
async def test_what_is_kept_of_a_member_outlasts_a_log_that_does_not_know_it_yet() -> None:
    async with rotting() as (cluster, (patient, *_)):
        await patient.ask(partial(patient.replica.members.add, NodeId("n9"), "n9:1"))
        await level(cluster)
        changed = patient.replica.log.state.members_position
        shared = await with_an_own_tail(cluster, patient, 6)
        await find_damage(patient, *range(changed, shared + 2))
        node = patient.life.node
        assert node is not None
        assert node._book is not None
        book, n9 = node._book.of(DEFAULT_GROUP), Member(NodeId("n9"), "n9:1")
        book.remember(n9, NodeStart(b"x" * 16, 1, (1,)))
        book.mark_lost_frames(n9)
        cluster.network.mend()
        await until(lambda: patient.is_recovering, poll_s=0.0001)
        await level(cluster)
        assert book.has_lost_frames(n9)
        assert book.disk_of(n9.id)
        await until(lambda: patient.replica.roster._is_committed)


@in_world
async def test_what_was_known_to_be_damaged_is_known_at_once_behind_a_swap() -> None:
    """A week before the next scrub comes by there."""
    async with rotting(appends=300, timings=Timings()) as (cluster, (patient, *_)):
        shared = await with_an_own_tail(cluster, patient, 6)
        leader = leader_beside(cluster, patient)
        await append(leader, 3)
        early = 10
        patient.has_rotted = True
        rot(patient, early, shared, shared + 1)
        first = patient.replica
        last_segment = first.log._files.segments[-1].name.base_position  # type: ignore[attr-defined]
        for position in (1, last_segment):
            await patient.ask(partial(first.log.scrub, Position(position)))
        await until(lambda: len(first.exchange.repairer.missing) == 2)
        cluster.network.faults.add(
            Rule(lambda _, target, message: isinstance(message, FetchResponse) and target == patient.id, drop_share=1.0)
        )
        cluster.network.faults.heal()
        await until(lambda: patient.is_up and patient.replica is not first)
        await until(lambda: bool(patient.replica.log.damaged()), 5)
        assert not patient.replica.core.may_lead
        cluster.network.mend()
        await level(cluster)
        assert frames(leader)[Position(early)] == frames(patient)[Position(early)]
