"""Rot heals from the other nodes while one of them has a good copy, and is neither served nor cut while none has."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dledger.common.config import Timings
from dledger.common.errors import CorruptLog
from dledger.common.types import DEFAULT_GROUP, Consistency, NodeId, Position, Role
from dledger.log.damage.damaged_log import DamagedLog
from dledger.raft.messages import Append, Compare, FetchResponse, Message, Reset
from dledger.testing.network_faults import Rule
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.debts import owes
from tests.simulation.host import SimHost
from tests.simulation.process import in_world
from tests.simulation.violation import Violation
from tests.unit.group.rot import (
    append,
    append_one,
    damage,
    frames,
    level,
    marked,
    places,
    rot,
    rotting,
    segments,
    trim,
    until,
)
from tests.unit.group.tails import allow, let_answers_arrive, start_idle


def last_of(host: SimHost) -> int:
    return max(places(host))


async def stop(*hosts: SimHost) -> None:
    for host in hosts:
        await host.stop()


async def start(*hosts: SimHost) -> None:
    for host in hosts:
        await host.start()


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("clean", [True, False])
@in_world
async def test_rot_that_keeps_a_log_from_being_opened_is_repaired_by_the_others(part: float, clean: bool) -> None:
    async with rotting() as (cluster, (leader, patient, _)):
        good, last = frames(leader), last_of(patient)
        await stop(patient) if clean else patient.crash()
        rot(patient, last, last - 2, last - 3, part=part)
        await patient.start()
        await level(cluster)
        assert {at: frames(patient)[at] for at in good} == good
        assert patient.replica.metrics.frames_repaired == 3


@in_world
async def test_rot_in_an_old_segment_is_repaired_when_somebody_reads_it() -> None:
    async with rotting(appends=200) as (cluster, (leader, patient, _)):
        good = frames(leader)
        await stop(patient)
        rot(patient, 5, 6, 30)
        await patient.start()
        await level(cluster)
        log = patient.replica.log
        with pytest.raises(CorruptLog):
            await patient.ask(lambda: log.read(Position(5), 1))
        assert log.damaged()
        await level(cluster)
        assert (await patient.ask(lambda: log.read(Position(5), 1)))[0].raw == good[Position(5)]
        assert {at: frames(patient)[at] for at in good} == good


@in_world
async def test_other_rot_on_every_node_heals_and_they_elect() -> None:
    async with rotting() as (cluster, hosts):
        good, last = frames(hosts[0]), last_of(hosts[0])
        await stop(*hosts)
        for at, host in enumerate(hosts):
            rot(host, last - at, last - 10 - 3 * at, last - 11 - 3 * at)
        await start(*hosts)
        await level(cluster)
        for host in hosts:
            assert {at: frames(host)[at] for at in good} == good


@in_world
async def test_one_range_may_be_put_together_from_several_nodes() -> None:
    async with rotting() as (cluster, hosts):
        good, last = frames(hosts[0]), last_of(hosts[0])
        await stop(*hosts)
        rot(hosts[0], *range(last - 9, last + 1))
        rot(hosts[1], *range(last - 9, last - 5))
        rot(hosts[2], *range(last - 5, last + 1))
        await start(*hosts)
        await level(cluster)
        for host in hosts:
            assert {at: frames(host)[at] for at in good} == good


@in_world
async def test_a_leader_that_finds_rot_gives_up_its_leadership_and_is_repaired() -> None:
    async with rotting(appends=200) as (cluster, (leader, *_)):
        good = frames(leader)
        rot(leader, 7)
        log, reader = leader.replica.log, leader.replica.reader
        index = (await leader.ask(lambda: log.read(Position(8), 1)))[0].header.base_index
        with pytest.raises(CorruptLog):
            await leader.ask(lambda: log.read(Position(7), 1))
        await until(lambda: bool(cluster.leaders()) and cluster.leaders() != [leader])
        await level(cluster)
        assert {at: frames(leader)[at] for at in good} == good
        point = await leader.ask(lambda: reader.read_point(Consistency.COMMITTED))
        assert (await leader.ask(lambda: reader.get(index, point))).index == index


@in_world
async def test_while_nobody_has_a_good_copy_a_node_is_stuck_alive_and_heals_when_one_comes() -> None:
    async with rotting() as (cluster, hosts):
        leader, patient, healthy = hosts
        good, last = frames(leader), last_of(leader)
        await stop(*hosts)
        rot(leader, last - 4)
        rot(patient, last - 4)
        before = bytes(segments(patient)[-1].data)
        await start(leader, patient)
        await asyncio.sleep(60)
        assert leader.is_recovering
        assert patient.is_recovering
        assert not cluster.leaders()
        node = patient.life.node
        assert node is not None
        recovering = node.groups.recovering[DEFAULT_GROUP]
        assert recovering.exchange.repairer.is_stuck
        assert recovering.metrics.damaged_frames == 1
        with pytest.raises(CorruptLog, match="repaired from the other nodes"):
            node.replica(DEFAULT_GROUP)
        assert bytes(segments(patient)[-1].data) == before, "nothing was cut"
        await healthy.start()
        await level(cluster)
        assert {at: frames(patient)[at] for at in good} == good


@in_world
async def test_a_damaged_node_votes_by_what_it_promised() -> None:
    async with rotting() as (cluster, (leader, patient, behind)):
        behind.crash()
        await append(leader, 10)
        await until(lambda: patient.replica.log.durable_position == leader.replica.log.last.position)
        last = last_of(patient)
        await stop(patient, leader)
        rot(patient, last)
        await start(patient, behind)
        await asyncio.sleep(60)
        assert not cluster.leaders(), "what the stopped leader and the damaged node hold may be committed"
        await leader.start()
        await level(cluster)
        assert behind.replica.log.last.position >= last


@in_world
async def test_a_damaged_node_hears_the_leader_and_follows_it_when_it_is_repaired() -> None:
    async with rotting() as (cluster, (leader, patient, other)):
        last = last_of(patient)
        await stop(patient)
        rot(patient, *range(last - 20, last))
        await append(leader, 50)
        await patient.start()
        await level(cluster)
        assert cluster.leaders() == [leader]
        assert patient.replica.role is Role.FOLLOWER
        assert frames(patient) == frames(other)


@in_world
async def test_a_sole_node_with_rot_stops() -> None:
    async with rotting(1) as (_, (host,)):
        last = last_of(host)
        await stop(host)
        damage(segments(host)[-1], places(host)[Position(last)][1] + 20)
        with pytest.raises(Violation, match=r"a start succeeds: .* was durable up to"):
            await host.start()
        assert not host.is_up
        assert not host.is_recovering


@in_world
async def test_a_scrub_finds_rot_that_nobody_reads_within_its_period() -> None:
    async with rotting(appends=200, timings=Timings(scrub_period_s=60)) as (cluster, (leader, patient, other)):
        good = frames(leader)
        for host, position in ((leader, 9), (patient, 9), (other, 50)):
            rot(host, position)
            if host is not other:
                rot(host, position + 20)
        assert not any(host.replica.log.damaged() for host in cluster.up())
        await asyncio.sleep(130)
        await level(cluster)
        for host in (leader, patient, other):
            assert {at: frames(host)[at] for at in good} == good
            assert host.replica.metrics.corruptions_found > 0
            assert host.replica.metrics.scrub_passes > 0


async def with_a_tail_of_its_own(leader: SimHost, others: list[SimHost]) -> tuple[int, int]:
    """The leader, down, with frames at its end that nobody else got. Returns the last shared position, and its last."""
    shared = leader.replica.log.last.position
    for host in others:
        host.crash()
    waiting = []
    for at in range(12):
        waiting.append(leader.ask(partial(append_one, leader, b"%d" % at)))
        await asyncio.sleep(0.02)
    await marked(leader)
    last = leader.replica.log.last.position
    assert last == shared + 12
    leader.crash()
    for future in waiting:
        assert future.exception() is not None
    return shared, last


@pytest.mark.parametrize("damaged", [[1], [6], [12], [1, 2, 12], [-1, 3], [-2, -1, 1, 6]])
@in_world
async def test_damaged_frames_that_were_never_committed_are_cut_by_the_leaders_word(damaged: list[int]) -> None:
    async with rotting() as (cluster, (patient, *others)):
        shared, last = await with_a_tail_of_its_own(patient, others)
        rot(patient, *(shared + at + (at < 0) for at in damaged))
        await start(*others)
        await until(lambda: bool(cluster.leaders()))
        await append(cluster.leaders()[0], 30)
        await patient.start()
        await level(cluster)
        await until(lambda: patient.replica.core.may_vote)
        assert frames(patient) == frames(others[0])
        assert last > shared


@pytest.mark.parametrize("terms", [1, 3])
@in_world
async def test_a_damaged_end_of_a_higher_term_than_the_leader_has_there_is_cut(
    terms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two leaders that reached nobody, the earlier one's log became everybody's, and is the longer one. The other
    led for some terms, each with one frame. Only a mark tells the term of what is damaged, and there may have been a
    newer one, which rotted: so it is owed."""
    async with rotting() as (cluster, (early, *others)):
        shared, _ = await with_a_tail_of_its_own(early, others)
        withheld = cluster.network.faults.add(Rule(_is_append, drop_share=1.0))
        for led in range(1, terms + 1):
            await start(*others)
            await until(partial(_is_durable_on_one, others, shared + led))
            patient, other = sorted(others, key=lambda host: not host.leads)
            await stop(patient, other)
        cluster.network.faults.remove(withheld)
        rot(patient, shared + terms)
        await start(early, other)
        await until(lambda: any(host.leads and host.replica.core.is_ready for host in (early, other)))
        await patient.start()
        await level(cluster)
        assert frames(patient) == frames(early)
        owed = [record.__dict__["owes_catch_up"] for record in caplog.records if hasattr(record, "owes_catch_up")]
        assert owed == [True]
        await until(lambda: patient.replica.core.may_vote)


def _is_durable_on_one(hosts: list[SimHost], position: int) -> bool:
    return any(host.replica.log.durable_position == position for host in hosts)


def _is_append(_source: NodeId, _target: NodeId, message: Message) -> bool:
    return isinstance(message, Append)


async def with_a_tail_behind_damage(cluster: SimulatedCluster, hosts: list[SimHost], count: int) -> Position:
    """The patient, down, with a tail of its own behind frames that were committed with its help, and are damaged: it
    will be led down to below them. The others run. Returns the last position before the damage."""
    leader, patient, other = hosts
    faults, shared = cluster.network.faults, leader.replica.log.last.position
    other.crash()
    await append(leader, count)
    leader.crash()  # before it can tell that the last of them is committed
    withheld = faults.add(Rule(_is_append, drop_share=1.0))
    await start_idle(other)  # it would fetch what it lacks, and be elected
    await until(lambda: patient.leads and patient.replica.log.durable_position == shared + count + 1)
    await stop(patient, other)
    faults.remove(withheld)
    rot(patient, *range(shared + 1, shared + count + 1))
    await leader.start()
    await start_idle(other)
    await until(lambda: leader.leads and leader.replica.core.is_ready)
    allow(other)
    return shared


def comparisons(cluster: SimulatedCluster, patient: SimHost) -> list[tuple[NodeId, Compare]]:
    """Those that it is sent from now on, and by whom."""
    sent: list[tuple[NodeId, Compare]] = []

    def note(source: NodeId, target: NodeId, message: Message) -> bool:
        if isinstance(message, Compare) and target == patient.id:
            sent.append((source, message))
        return False

    cluster.network.faults.add(Rule(note))
    return sent


@pytest.mark.parametrize("count", [1, 3], ids=["not known to be committed", "known to be committed in part"])
@pytest.mark.parametrize("echo", [False, True])
@in_world
async def test_what_a_comparison_passed_over_and_was_repaired_meanwhile_is_not_cut(count: int, echo: bool) -> None:
    """Before it is asked below what is damaged that is repaired. The question may come behind an echo of another."""
    async with rotting() as (cluster, hosts):
        leader, patient, _ = hosts
        shared = await with_a_tail_behind_damage(cluster, hosts, count)
        faults, sent = cluster.network.faults, comparisons(cluster, patient)
        faults.add(Rule(lambda _source, _target, message: isinstance(message, Compare), delay_s=0.4))
        faults.add(Rule(lambda _source, _target, message: isinstance(message, FetchResponse), delay_s=0.55))
        let_answers_arrive(cluster, patient)
        cuts: list[Position | None] = []
        cluster.on_cut = lambda host: cuts.append(host.life.cut_to)
        await patient.start()
        if echo:
            await until(lambda: patient.is_up)
            patient.life.transport.handler.on_message(*sent[0])
        await level(cluster)
        assert frames(patient) == frames(leader)
        assert cuts == [shared + count]


@in_world
async def test_an_echo_of_a_comparison_does_not_hide_what_is_owed() -> None:
    async with rotting() as (cluster, hosts):
        _, patient, _ = hosts
        shared = await with_a_tail_behind_damage(cluster, hosts, 1)
        await append(cluster.leaders()[0], 3)
        sent = comparisons(cluster, patient)

        def echo(_source: NodeId, target: NodeId, message: Message) -> bool:
            if isinstance(message, Compare) and target == patient.id and message.point.position == shared:
                patient.life.transport.handler.on_message(*sent[0])
            return False

        faults = cluster.network.faults
        faults.add(Rule(echo))
        # Nothing is repaired. A delay would hold back the comparisons behind the answer on the leader's connection.
        faults.add(Rule(lambda _source, _target, message: isinstance(message, FetchResponse), drop_share=1.0))
        await patient.start()
        await until(lambda: patient.is_up)
        assert owes(patient)
        faults.clear()
        await level(cluster)


@in_world
async def test_who_owes_does_not_vote_while_its_log_is_being_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is slow, and the leader gone meanwhile."""
    may_cut, cut = asyncio.Event(), DamagedLog.cut

    async def slow_cut(self: DamagedLog, after: Position) -> None:
        await may_cut.wait()
        await cut(self, after)

    monkeypatch.setattr(DamagedLog, "cut", slow_cut)
    async with rotting() as (cluster, hosts):
        _, patient, _ = hosts
        await with_a_tail_behind_damage(cluster, hosts, 1)
        await append(cluster.leaders()[0], 3)
        faults = cluster.network.faults
        faults.add(Rule(lambda _source, _target, message: isinstance(message, FetchResponse), drop_share=1.0))
        await patient.start()
        await until(lambda: owes(patient))
        gone = cluster.leaders()[0]
        gone.crash()
        await asyncio.sleep(4)
        assert not cluster.leaders()
        may_cut.set()
        faults.clear()
        await gone.start()
        await level(cluster)


@in_world
async def test_a_voter_whose_log_was_cut_to_where_it_names_nobody_does_not_vote_before_it_is_caught_up() -> None:
    async with rotting(appends=20) as (cluster, (leader, *others)):
        patient = cluster.new_host()
        patient.peers = {str(member.id): member.peer_address for member in leader.replica.log.state.members}
        await patient.start()
        await leader.ask(lambda: leader.replica.members.add(patient.id, patient.address))
        await level(cluster)
        await leader.ask(lambda: leader.replica.members.promote(patient.id))
        await level(cluster)
        await marked(patient)
        await patient.stop()
        rot(patient, min(places(patient)), max(places(patient)) - 1)
        patient.has_rotted = True
        await append(leader, 400)
        await trim(cluster, leader, leader.replica.commit_index - 20)
        start_point = leader.replica.log.state.start
        await until(lambda: all(host.replica.log.state.start == start_point for host in others))
        resets = Rule(lambda _source, to, message: isinstance(message, Reset) and to == patient.id, drop_share=1.0)
        cluster.network.faults.add(resets)
        await patient.start()
        await until(lambda: patient.is_up)
        assert not patient.replica.core.membership.members
        assert not patient.replica.core.may_vote
        leader.crash()
        await asyncio.sleep(10)
        assert not cluster.leaders(), "two of four voters are left, and the patient"
        cluster.network.faults.clear()
        await leader.start()
        await level(cluster)
        await until(lambda: patient.replica.core.may_vote, 60)


@in_world
async def test_damage_before_the_leaders_trim_point_is_not_missed() -> None:
    async with rotting(appends=30) as (cluster, (leader, patient, _)):
        await patient.stop()
        first = min(places(patient))
        rot(patient, first + 3, max(places(patient)) - 1)
        await append(leader, 400)
        await trim(cluster, leader, leader.replica.commit_index - 20)
        assert leader.replica.log.state.start.position > max(places(patient))
        await patient.start()
        await level(cluster)
        await until(lambda: patient.replica.core.may_vote)
