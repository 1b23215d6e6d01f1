"""A node that cut the end of its log asks the others what was there before it votes; nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from types import SimpleNamespace

import pytest

from dledger.config import Timings
from dledger.errors import ChangeRefused
from dledger.raft.messages import (
    Append,
    Compare,
    Fetch,
    FetchResponse,
    FetchResult,
    Heartbeat,
    Reset,
    Truncate,
    VoteRequest,
)
from dledger.raft.state import Hindrance
from dledger.storage.frame import HEADER_BYTES, Frame
from dledger.storage.segment import FIRST_PAGE_BYTES
from dledger.transport.faults import Rule
from dledger.types import GENESIS, Durability, Position
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.platter import SimFile
from tests.simulation.process import in_world
from tests.unit.server.rot import (
    append,
    append_one,
    damage,
    frames,
    learner,
    level,
    places,
    promote,
    promote_and_append,
    replace_disk,
    rot,
    rotting,
    segments,
    trim,
    until,
)

BEFORE_A_MARK_S = 0.0005
NOTICED_S = 3.0
"""So long after a power cut the others have given up their connections, and take new ones."""


async def cut_short(leader: SimHost, patient: SimHost) -> Position:
    """Both lose power right after ``patient`` acknowledged a frame that no mark covers yet; there it rots."""
    await append(leader, 1)
    last = leader.replica.log.last.position
    await until(lambda: patient.replica.log.durable_position == last)
    leader.crash()
    patient.crash()
    lose(patient, last)
    return last


def lose(host: SimHost, last: Position) -> None:
    """What it acknowledged a moment ago rots, where no mark covers it yet."""
    file, offset, _ = places(host)[last]
    damage(file, offset + HEADER_BYTES + 4)
    host.promised = GENESIS  # rot takes what no crash may take
    host.has_rotted = host.lost_tail = True


def tear(host: SimHost) -> None:
    """As a write that the power cut: bytes behind the last frame that are none."""
    file = segments(host)[-1]
    last = max(places(host).values(), key=lambda place: (place[0] is file, place[1]))
    end = last[1] + last[2] if last[0] is file else FIRST_PAGE_BYTES
    damage(file, end, 40)


async def cut_and_noticed(host: SimHost) -> None:
    """It is without power, with a torn write, and the others go on."""
    host.crash()
    tear(host)
    await asyncio.sleep(NOTICED_S)


@in_world
async def test_an_acknowledged_frame_that_was_cut_is_taken_back_before_the_first_vote() -> None:
    async with rotting() as (cluster, (leader, patient, other)):
        await other.stop()
        other.wipe()  # it knows nothing, and says so
        last = await cut_short(leader, patient)
        await patient.start()
        assert patient.replica.log.recovery.torn_bytes > 0  # type: ignore[attr-defined]
        assert patient.replica.log.last.position == last - 1
        await asyncio.sleep(10)
        assert Hindrance.UNKNOWN_TAIL in patient.replica.core.hindrances
        await leader.start()
        await until(lambda: patient.replica.log.last.position >= last)
        assert not cluster.leaders(), "it had it before anybody could be elected"
        await until(lambda: bool(cluster.leaders()))
        assert not patient.replica.core.hindrances


@in_world
async def test_the_word_of_an_emptied_disk_is_not_that_of_the_one_that_acknowledged() -> None:
    async with rotting() as (_, (leader, patient, other)):
        await other.stop()
        other.wipe()
        await cut_short(leader, patient)
        for host in (other, patient):
            await host.start()
        await asyncio.sleep(10)
        assert other.id in patient.replica.core.doubted
        assert Hindrance.UNKNOWN_TAIL in patient.replica.core.hindrances


async def doubt(host: SimHost, other: SimHost) -> None:
    """It has seen that ``other`` lost something, before."""
    assert host.life is not None
    assert host.life.node is not None
    host.life.node.on_lost_frames(host.replica.group, other.id)
    await host.life.node.keep_peers()


@in_world
async def test_a_disk_in_doubt_gives_back_what_it_has_though_its_word_is_no_answer() -> None:
    async with rotting() as (_, (leader, patient, other)):
        await patient.ask(partial(doubt, patient, other))
        last = await cut_short(leader, patient)
        await patient.start()
        await until(lambda: patient.replica.log.last.position >= last)
        assert other.id in patient.replica.core.doubted
        assert Hindrance.UNKNOWN_TAIL in patient.replica.core.hindrances


async def make_learner(leader: SimHost, patient: SimHost) -> None:
    await leader.replica.members.remove(patient.id)
    await leader.replica.members.add(patient.id, patient.address)


@in_world
async def test_a_learner_asks_too_for_it_may_have_been_promoted_in_what_was_cut() -> None:
    async with rotting() as (cluster, (leader, patient, other)):
        await leader.ask(partial(make_learner, leader, patient))
        await level(cluster)
        for host in (leader, patient, other):
            host.crash()
        tear(patient)
        await patient.start()
        core = patient.replica.core
        assert patient.id not in core.membership.voters
        assert Hindrance.UNKNOWN_TAIL in core.hindrances
        await leader.start()
        await other.start()
        await until(lambda: Hindrance.UNKNOWN_TAIL not in core.hindrances)


def forget(file: SimFile, offset: int) -> None:
    """All behind ``offset`` reads as if it had never been written."""
    for content in (file.data, file.medium):
        content[offset:] = bytes(len(content) - offset)


@in_world
async def test_what_rot_took_behind_a_repaired_frame_is_asked_for_too_though_no_byte_is_left_of_it() -> None:
    async with rotting() as (cluster, (leader, patient, other)):
        await other.stop()
        last = await cut_short(leader, patient)
        file, offset, _ = places(patient)[Position(last - 1)]  # below the mark
        forget(file, offset)
        await other.start()
        await patient.start()
        await until(lambda: patient.is_up)
        assert patient.replica.log.last.position == last - 1
        assert Hindrance.UNKNOWN_TAIL in patient.replica.core.hindrances
        await leader.start()
        await level(cluster)
        assert patient.replica.log.last.position >= last


@pytest.mark.parametrize("alive", [2, 3])
@in_world
async def test_a_power_cut_of_all_that_tears_every_log_is_over_soon(alive: int) -> None:
    async with rotting() as (cluster, hosts):
        good = frames(hosts[0])
        for host in hosts:
            host.crash()
            tear(host)
        for host in hosts[:alive]:
            await host.start()
        await until(lambda: bool(cluster.leaders()), within_s=5)
        for host in hosts[alive:]:
            await host.start()
        await level(cluster)
        for host in hosts:
            assert {at: frames(host)[at] for at in good} == good


@in_world
async def test_alone_it_does_not_vote() -> None:
    async with rotting() as (cluster, hosts):
        for host in hosts:
            host.crash()
            tear(host)
        await hosts[1].start()
        await asyncio.sleep(60)
        assert Hindrance.UNKNOWN_TAIL in hosts[1].replica.core.hindrances
        assert not cluster.leaders()


@in_world
async def test_that_a_leader_answered_is_not_enough_before_its_frames_are_here() -> None:
    """What was acknowledged is on the leader, and on the node that cut it; the third one, which the leader does not
    reach, would be elected by the latter once the leader is gone."""
    async with rotting() as (cluster, (leader, patient, other)):
        cluster.network.faults.cut_both(leader.id, other.id)
        await append(leader, 1)
        last = leader.replica.log.last.position
        await until(lambda: patient.replica.log.durable_position == last)
        patient.crash()
        lose(patient, last)
        faults = cluster.network.faults
        silence = faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, Compare | Append), 1.0))
        deaf = faults.add(Rule(lambda source, _, what: source == patient.id and isinstance(what, Fetch), 1.0))
        await patient.start()
        await until(lambda: patient.replica.core.leader_id == leader.id)
        faults.remove(deaf)
        await asyncio.sleep(10)
        assert patient.replica.log.last.position == last - 1
        leader.crash()
        await asyncio.sleep(10)
        assert not cluster.leaders()
        await leader.start()
        faults.remove(silence)
        await until(lambda: patient.replica.log.last.position >= last)
        await until(lambda: bool(cluster.leaders()))


@in_world
async def test_what_it_cannot_have_acknowledged_is_not_waited_for() -> None:
    """The leader offers frames of a term that the patient had not heard of, and is gone before they are here."""
    async with rotting() as (cluster, (old, patient, _)):
        patient.crash()
        tear(patient)
        old.crash()
        await old.start()
        await until(lambda: bool(cluster.leaders()) and cluster.leaders()[0].term > 1)
        leader = cluster.leaders()[0]
        await append(leader, 3)
        faults = cluster.network.faults
        faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, Compare | Append), 1.0))
        deaf = faults.add(Rule(lambda source, _, what: source == patient.id and isinstance(what, Fetch), 1.0))
        await patient.start()
        await until(lambda: patient.replica.core.leader_id == leader.id)
        faults.remove(deaf)
        await until(lambda: not patient.replica.core.hindrances)
        assert patient.replica.log.last.term == 1


# Where the others differ ---------------------------------------------------------------------------------------------


async def with_two_branches(cluster: SimulatedCluster, hosts: list[SimHost]) -> Position:
    """All down. The first has a frame that nobody else got; the third has another one there, of a later term, that was
    committed with the patient's help, and the patient has lost it. Returns its position."""
    old, patient, right = hosts
    branch = Position(old.replica.log.last.position + 1)
    cluster.network.faults.partition([old.id], [patient.id, right.id])
    doomed = old.ask(partial(append_one, old, b"never acknowledged"))
    await until(lambda: old.replica.log.durable_position == branch)
    old.crash()
    assert doomed.exception() is not None
    patient.replica.core.set_may_lead(False, patient.life.process.time() * 1000)
    await until(lambda: cluster.watch.chronicle.commit_position >= branch, poll_s=BEFORE_A_MARK_S)
    assert right.leads
    assert patient.replica.log.durable_position == branch
    right.crash()
    patient.crash()
    lose(patient, branch)
    cluster.network.mend()
    return branch


@pytest.mark.parametrize("is_there", [True, False], ids=["whoever is right is slow", "whoever is right comes later"])
@in_world
async def test_the_older_of_two_branches_is_not_taken_for_what_was_acknowledged(is_there: bool) -> None:
    """That of a leader that is gone is heard first. Whoever has it would be elected."""
    async with rotting() as (cluster, hosts):
        old, patient, right = hosts
        await with_two_branches(cluster, hosts)
        await old.start()
        if is_there:
            await start_idle(right)
            cluster.network.faults.add(Rule(lambda source, _to, _what: source == right.id, delay_s=0.01))
        await start_idle(patient)
        core = patient.replica.core
        assert Hindrance.UNKNOWN_TAIL in core.hindrances
        if not is_there:
            await until(lambda: patient.replica._tail_query._ends.keys() == {old.id})  # type: ignore[union-attr]
            await start_idle(right)
        await until(lambda: core.hindrances == {Hindrance.SLOW_DISK})
        assert patient.replica.log.last == right.replica.log.last
        await asyncio.sleep(5)
        assert not cluster.leaders()
        allow(right)
        await until(lambda: bool(cluster.leaders()))
        assert right.leads
        await level(cluster)


@pytest.mark.parametrize("quick", ["the learner", "the voter"])
@in_world
async def test_of_two_branches_the_further_one_is_taken_whoever_answers_first(quick: str) -> None:
    """A learner alone has the last log. The patient, which has the only other vote, must have what the learner has: it
    does not stand without it, and nobody else could give it to whoever does."""
    async with rotting() as (cluster, (voter, patient, gone)):
        keeper = await learner(cluster, voter)
        common = voter.replica.log.last.position
        faults = cluster.network.faults
        faults.partition([voter.id], [patient.id, gone.id, keeper.id])
        doomed = voter.ask(partial(append_one, voter, b"never acknowledged"))
        await until(lambda: voter.replica.log.durable_position == common + 1)
        forbid(patient)
        faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, Append), 1.0))
        await until(lambda: gone.leads and keeper.replica.log.last.term == gone.term)
        for host in (gone, patient):
            host.crash()
        tear(patient)
        await asyncio.sleep(NOTICED_S)
        assert doomed.exception() is not None
        cluster.network.mend()
        faults.clear()
        slow = voter.id if quick == "the learner" else keeper.id
        faults.add(Rule(lambda source, _to, _what: source == slow, delay_s=0.02))
        await asyncio.sleep(NOTICED_S)
        await patient.start()
        await until(lambda: bool(cluster.leaders()))


async def start_idle(host: SimHost) -> None:
    """It does not stand, for now."""
    await host.start()
    host.replica.core.set_may_lead(False, host.life.process.time() * 1000)


@in_world
async def test_whoever_has_what_was_acknowledged_gets_the_vote_of_who_took_another_branch() -> None:
    async with rotting() as (cluster, hosts):
        old, patient, right = hosts
        await with_two_branches(cluster, hosts)
        await old.start()
        await start_idle(patient)
        await until(lambda: patient.replica.log.last == old.replica.log.last)
        old.crash()
        await right.start()
        await until(lambda: right.leads)


@in_world
async def test_who_cut_its_end_in_an_earlier_start_does_not_vote_while_its_log_is_repaired() -> None:
    async with rotting() as (cluster, (leader, patient, other)):
        await other.stop()
        last = await cut_short(leader, patient)
        await patient.start()
        assert patient.replica.log.last.position == last - 1
        await asyncio.sleep(1)
        patient.crash(power=False)  # it has asked nobody yet
        rot(patient, last - 5)  # below the mark
        slow = Rule(lambda _, to, what: to == patient.id and isinstance(what, FetchResponse), delay_s=1.5)
        cluster.network.faults.add(slow)
        await start_idle(leader)
        await patient.start()
        assert "default" in patient.life.node.recovering  # type: ignore[union-attr]
        await other.start()
        await asyncio.sleep(10)
        assert not [host for host in cluster.leaders() if host.replica.log.last.position < last]
        allow(leader)
        await level(cluster)


@in_world
async def test_where_a_log_begins_behind_the_point_asked_a_candidate_must_have_all_of_it() -> None:
    """What this node acknowledged may have been trimmed there, and lie on no other of those who are up."""
    async with rotting(5) as (cluster, (leader, patient, holder, *behind)):
        for host in behind:
            await host.stop()
        await cut_short(leader, patient)
        for host in behind:
            await host.start()
        holder.replica.core.set_may_lead(False, holder.life.process.time() * 1000)
        begin_behind_the_end_of_others(holder)
        await asyncio.sleep(NOTICED_S)
        await patient.start()
        await until(lambda: not patient.replica.core.hindrances)
        await asyncio.sleep(5)
        assert not cluster.leaders()
        allow(holder)
        await until(lambda: bool(cluster.leaders()))
        assert holder.leads


def begin_behind_the_end_of_others(host: SimHost) -> None:
    """It gives its frames to nobody, as if all were trimmed by now."""
    server, log = host.replica.exchange._server, host.replica.log
    real, start = server._read, log.last
    assert start.position > 0

    async def read(ask: Fetch) -> tuple[FetchResult, tuple[Frame, ...]]:
        return (FetchResult.TRIMMED, ()) if ask.previous.position < start.position else await real(ask)

    server._read = read  # type: ignore[method-assign]
    server._log = SimpleNamespace(read=log.read, last=start, state=SimpleNamespace(start=start), voters=log.voters)


async def catch_up_unheard(cluster: SimulatedCluster, leader: SimHost, patient: SimHost, last: Position) -> None:
    """The patient starts, gets all, and is without power before it hears that this is committed."""
    deaf = cluster.network.faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, Heartbeat), 1.0))
    await patient.start()
    await until(lambda: leader.replica.core.commit_position >= last, poll_s=0.0001)
    patient.crash()
    cluster.network.faults.remove(deaf)


@in_world
async def test_the_voters_by_a_log_behind_its_own_are_no_majority() -> None:
    """It was cut long ago, and caught up since, in starts that were too short to hear of it: of five voters by its own
    log it needs three, though another log, that goes on from the cut, knows of three in all."""
    async with rotting() as (cluster, (leader, lagging, patient)):
        faults = cluster.network.faults
        second, third = await learner(cluster, leader), await learner(cluster, leader)
        await cut_and_noticed(patient)
        await append(leader, 3)
        await until(lambda: lagging.replica.core.commit_position == leader.replica.core.commit_position)
        faults.add(Rule(lambda _, to, what: to == lagging.id and isinstance(what, Append | Compare), 1.0))
        old = lagging.replica.log.last
        promoting = leader.ask(partial(leader.replica.members.promote, second.id))
        await until(lambda: second.replica.log.last.position > old.position)
        await catch_up_unheard(cluster, leader, patient, Position(old.position + 1))
        await promoting
        lagging.crash()
        await promote(leader, third)
        await append(leader, 2)
        await until(lambda: third.replica.log.last == leader.replica.log.last)
        faults.add(Rule(lambda _, to, what: to == third.id and isinstance(what, Append | Compare), 1.0))
        last = Position(leader.replica.log.last.position + 1)
        appending = leader.ask(partial(append_one, leader, b"by three of five"))
        await until(lambda: second.replica.log.durable_position == last)
        await catch_up_unheard(cluster, leader, patient, last)
        await appending
        for host in (leader, second, third):
            host.crash()
        tear(patient)
        cluster.network.mend()
        faults.clear()
        await asyncio.sleep(NOTICED_S)
        await patient.start()
        assert patient.replica.log.last.position == last
        assert patient.replica._tail_query._cut_behind.position < old.position  # type: ignore[union-attr]
        await start_idle(lagging)
        await asyncio.sleep(10)
        assert Hindrance.UNKNOWN_TAIL in patient.replica.core.hindrances


@in_world
async def test_the_voters_by_a_damaged_log_are_no_majority() -> None:
    """What is damaged may have changed them."""
    async with rotting(1, appends=5) as (cluster, (founder,)):
        first, second, third, patient, damaged = [await learner(cluster, founder) for _ in range(5)]
        for host in (first, second, third, patient):
            await promote(founder, host)
        await append(founder, 3)
        await level(cluster)
        for host in (founder, first, second, third, patient, damaged):
            host.crash()
        tear(patient)
        rot(damaged, 3)
        await asyncio.sleep(NOTICED_S)
        slow = Rule(lambda _, to, what: to == damaged.id and isinstance(what, FetchResponse), delay_s=1.5)
        cluster.network.faults.add(slow)
        starting = asyncio.ensure_future(damaged.start())
        await start_idle(patient)
        await starting
        assert damaged.is_recovering
        await start_idle(founder)
        await asyncio.sleep(10)
        assert Hindrance.UNKNOWN_TAIL in patient.replica.core.hindrances, "two of five voters have answered"


@in_world
async def test_what_a_leader_wrote_since_it_answered_and_nobody_got_is_not_required() -> None:
    """The patient cannot have acknowledged it before: the leader had answered without it in this start."""
    async with rotting() as (cluster, (leader, patient, third)):
        faults = cluster.network.faults
        await cut_and_noticed(patient)
        await append(leader, 30)
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to == patient.id, 1.0))
        await patient.start()
        await until(lambda: Hindrance.UNKNOWN_TAIL not in patient.replica.core.hindrances, poll_s=0.001)
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to == third.id, 1.0))
        doomed = leader.ask(partial(append_one, leader, b"nobody gets it"))
        await asyncio.sleep(2)
        leader.crash()
        assert doomed.exception() is not None
        cluster.network.mend()
        faults.clear()
        await until(lambda: bool(cluster.leaders()))


@pytest.mark.parametrize("third_has_answered", [False, True])
@in_world
async def test_what_a_leader_wrote_since_it_answered_is_not_required_by_whomever_it_is_told(
    third_has_answered: bool,
) -> None:
    """Of five; only the third gets it, and is gone with the leader."""
    async with rotting(5) as (cluster, (leader, patient, third, *others)):
        faults = cluster.network.faults
        await cut_and_noticed(patient)
        await append(leader, 30)
        await until(lambda: len({host.replica.log.last for host in (leader, third, *others)}) == 1)
        seen = leader.replica.log.last.position
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to == patient.id, 1.0))

        def is_late(source: object, to: object, what: object) -> bool:
            if source != patient.id or to != third.id or not isinstance(what, Fetch):
                return False
            return what.previous.position >= seen or not third_has_answered

        late = faults.add(Rule(is_late, delay_s=0.3))
        await patient.start()
        query = patient.replica._tail_query
        assert query is not None
        await until(lambda: leader.id in query._answered, poll_s=0.001)
        away = {host.id for host in others}
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to in away, 1.0))
        doomed = leader.ask(partial(append_one, leader, b"the third gets it"))
        await until(lambda: third.replica.log.last.position > seen, poll_s=0.001)
        faults.remove(late)
        await until(lambda: Hindrance.UNKNOWN_TAIL not in patient.replica.core.hindrances)
        leader.crash()
        third.crash()
        assert doomed.exception() is not None
        cluster.network.mend()
        faults.clear()
        await until(lambda: bool(cluster.leaders()), within_s=120)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3])
@in_world
async def test_who_comes_while_another_is_slow_to_answer_is_asked(after_s: float) -> None:
    """The leader and the patient have what was acknowledged, and the patient lost it."""
    async with rotting() as (cluster, (leader, patient, third)):
        faults = cluster.network.faults
        deaf = faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to == third.id, 1.0))
        last = await cut_short(leader, patient)
        third.crash()
        faults.remove(deaf)
        await asyncio.sleep(NOTICED_S)
        await third.start()
        assert third.replica.log.last.position == last - 1
        slow = (patient.id, third.id)
        faults.add(Rule(lambda source, to, what: (source, to) == slow and isinstance(what, Fetch), delay_s=1.5))
        await patient.start()
        faults.cut_both(leader.id, third.id)
        await asyncio.sleep(after_s)
        await start_idle(leader)
        await asyncio.sleep(15)
        assert not [host for host in cluster.leaders() if host.replica.log.last.position < last or host is third]


@in_world
async def test_what_a_leader_had_in_flight_when_it_died_is_taken_with_its_answer() -> None:
    async with rotting() as (cluster, (leader, patient, _)):
        faults = cluster.network.faults
        await cut_and_noticed(patient)
        faults.add(Rule(lambda _, _to, what: isinstance(what, Append | Compare), 1.0))
        doomed = leader.ask(partial(append_one, leader, b"nobody gets it"))
        await asyncio.sleep(0.3)
        await patient.start()
        await until(lambda: Hindrance.UNKNOWN_TAIL not in patient.replica.core.hindrances)
        leader.crash()
        assert doomed.exception() is not None
        cluster.network.mend()
        faults.clear()
        await until(lambda: bool(cluster.leaders()), within_s=120)


async def promote_two(founder: SimHost, first: SimHost, second: SimHost) -> None:
    """The second as soon as the first is a voter: one sync mark may cover both."""
    members = founder.replica.members
    promoted = asyncio.ensure_future(members.promote(first.id))
    await append_one(founder, b"before")
    await promoted
    while founder.replica.core.membership.voters < {founder.id, first.id, second.id}:
        with contextlib.suppress(ChangeRefused):
            await members.promote(second.id)
        await asyncio.sleep(0.0001)


@in_world
async def test_an_only_voter_that_cut_a_promotion_does_not_lead_beside_those_who_have_trimmed_it() -> None:
    timings = Timings(sync_mark_interval_ms=50, sync_mark_idle_ms=100)
    async with rotting(1, timings=timings) as (cluster, (founder,)):
        first, second = await learner(cluster, founder), await learner(cluster, founder)
        await asyncio.sleep(1)
        before = founder.replica.log.last.position
        await founder.ask(partial(promote_two, founder, first, second))
        founder.crash()
        lose(founder, Position(before + 2))
        await until(lambda: any(host.leads and host.replica.core.is_ready for host in (first, second)))
        (leader,) = cluster.leaders()
        await append(leader, 900)
        await trim(cluster, leader, 800)
        await until(lambda: leader.replica.log.state.start.term > 1)
        late = Rule(lambda _, to, what: to == founder.id and isinstance(what, Append | Compare | Reset), 1.0)
        cluster.network.faults.add(late)
        await founder.start()
        assert founder.replica.core.membership.voters == {founder.id}
        await asyncio.sleep(10)
        assert not founder.leads


@pytest.mark.parametrize("is_heard_by_fifth", [False, True])
@pytest.mark.parametrize("heir_leads", [False, True])
@in_world
async def test_a_log_that_was_cut_between_two_answers_is_asked_from_the_cut_again(
    is_heard_by_fifth: bool, heir_leads: bool
) -> None:
    """Of five; the heir has a doomed frame when it answers first, and when it answers again what the patient had
    acknowledged to the leader that is gone by then."""
    async with rotting(5) as (cluster, (old, heir, leader, patient, fifth)):
        faults = cluster.network.faults
        shared = old.replica.log.last.position
        faults.partition([old.id, heir.id], [leader.id, patient.id, fifth.id])
        for host in (heir, patient, fifth):
            forbid(host)
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to == fifth.id, 1.0))
        doomed = old.ask(partial(append_one, old, b"never acknowledged"))
        await until(lambda: heir.replica.log.durable_position == shared + 1)
        old.crash()
        assert doomed.exception() is not None
        await until(lambda: leader.leads)
        followers = leader.replica.core.leadership.followers  # type: ignore[union-attr]
        await until(lambda: followers[patient.id].match > shared, poll_s=BEFORE_A_MARK_S)
        patient.crash()
        lose(patient, Position(shared + 1))
        cluster.network.mend()
        faults.clear()
        for host in {old, leader, fifth} - ({fifth} if is_heard_by_fifth else set()):
            faults.cut_both(patient.id, host.id)
        held = faults.add(Rule(lambda source, _, what: source == leader.id and isinstance(what, Append | Compare), 1.0))

        def is_again(source: object, to: object, what: object) -> bool:
            return (source, to) == (patient.id, heir.id) and isinstance(what, Fetch) and what.previous.position > shared

        late = faults.add(Rule(is_again, 1.0))
        await patient.start()
        query = patient.replica._tail_query
        assert query is not None
        await until(lambda: heir.id in query._ends)
        faults.remove(held)
        deaf = {fifth.id, old.id, patient.id}
        faults.add(Rule(lambda _, to, what: isinstance(what, Append | Compare | Truncate) and to in deaf, 1.0))
        await until(lambda: leader.replica.core.commit_position > shared)
        await until(lambda: heir.replica.log.last == leader.replica.log.last)
        await start_idle(old)
        leader.crash()
        if heir_leads:
            allow(heir)
            await until(lambda: heir.leads)
        faults.remove(late)
        await asyncio.sleep(3)
        heir.crash()
        cluster.network.mend()
        faults.clear()
        for host in (old, patient, fifth):
            allow(host)
        await asyncio.sleep(20)
        assert not [host for host in cluster.leaders() if host is not patient]


@in_world
async def test_a_log_that_is_trimmed_between_two_answers_is_still_one_to_vote_for() -> None:
    async with rotting() as (cluster, (leader, patient, third)):
        faults = cluster.network.faults
        await cut_and_noticed(patient)
        await append(leader, 30)
        faults.add(Rule(lambda _, to, what: isinstance(what, Append | Compare | Reset) and to == patient.id, 1.0))
        asked = list[object]()

        def is_again(source: object, to: object, what: object) -> bool:
            if source != patient.id or not isinstance(what, Fetch):
                return False
            asked.append(to)
            return asked.count(to) > 1

        late = faults.add(Rule(is_again, 1.0))
        await patient.start()
        await until(lambda: {leader.id, third.id} <= set(asked), poll_s=0.001)
        await append(leader, 900)
        await trim(cluster, leader, 800)
        await until(lambda: all(host.replica.log.state.start.position > 100 for host in (leader, third)))
        await until(lambda: third.replica.log.last == leader.replica.log.last)
        faults.remove(late)
        await until(lambda: Hindrance.UNKNOWN_TAIL not in patient.replica.core.hindrances)
        leader.crash()
        cluster.network.mend()
        faults.clear()
        await until(lambda: bool(cluster.leaders()))


@in_world
async def test_what_a_follower_gets_after_its_first_answer_may_have_been_acknowledged_before() -> None:
    """Of five; the patient loses its last two records, and acknowledged both. The third has one of them when it answers
    first, and the other when that is committed, with what the patient had acknowledged."""
    async with rotting(5) as (cluster, (leader, patient, third, *others)):
        faults = cluster.network.faults
        away = {host.id for host in others}
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to in away, 1.0))
        hold = faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to == patient.id, 1.0))
        first = Position(leader.replica.log.last.position + 1)
        appending = [leader.ask(partial(append_one, leader, b"first"))]
        await until(lambda: third.replica.log.durable_position >= first, poll_s=BEFORE_A_MARK_S)
        held = faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to == third.id, 1.0))
        appending.append(leader.ask(partial(append_one, leader, b"last")))
        last = Position(first + 1)
        await until(lambda: leader.replica.log.durable_position >= last, poll_s=BEFORE_A_MARK_S)
        faults.remove(hold)
        leadership = leader.replica.core.leadership
        assert leadership is not None
        await until(lambda: leadership.followers[patient.id].match >= last, poll_s=BEFORE_A_MARK_S)
        patient.crash()
        lose(patient, first)
        faults.cut_both(leader.id, patient.id)

        def is_for_later(source: object, to: object, what: object) -> bool:
            if source != patient.id or not isinstance(what, Fetch):
                return False
            return to != third.id or (what.previous.position >= first and what.last_wanted > last)

        late = faults.add(Rule(is_for_later, 1.0))
        await patient.start()
        await until(lambda: patient.replica.log.last.position == first)
        faults.remove(held)
        await until(lambda: leader.replica.core.commit_position >= last)
        await asyncio.gather(*appending, return_exceptions=True)  # one may have been told too late
        assert third.replica.log.last.position == last
        faults.remove(late)
        await until(lambda: Hindrance.UNKNOWN_TAIL not in patient.replica.core.hindrances)
        forbid(third)
        leader.crash()
        faults.clear()
        faults.add(Rule(lambda source, _to, _what: source == third.id, delay_s=0.1))
        await asyncio.sleep(15)
        assert not [host for host in cluster.leaders() if host.replica.log.last.position < last]


@in_world
async def test_what_it_has_got_since_the_cut_is_not_read_again() -> None:
    """Its disk is slow, so that it has never all that is committed while the load lasts."""
    async with rotting() as (cluster, (leader, patient, _)):
        await cut_and_noticed(patient)
        patient.mood.sync_s = (0.03, 0.04)
        given = list[Position]()

        def is_given(_: object, to: object, what: object) -> bool:
            if to == patient.id and isinstance(what, FetchResponse):
                given.extend(Position(frame.header.position) for frame in what.frames)
            return False

        cluster.network.faults.add(Rule(is_given, 1.0))
        loads = [leader.ask(partial(append, leader, 2_000)) for _ in range(4)]
        await patient.start()
        await asyncio.sleep(20)
        has = patient.replica.log.last.position
        given.clear()
        leader.crash()
        for load in loads:
            load.exception()
        await until(lambda: bool(cluster.leaders()))
        assert len([position for position in given if position <= has]) < 100


async def left_with_a_replaced_disk(cluster: SimulatedCluster, others: list[SimHost]) -> SimHost:
    """Of these four one is given an empty disk, readmitted and promoted; it and another one are left."""
    await asyncio.sleep(NOTICED_S)
    await until(lambda: bool(cluster.leaders()) and cluster.leaders()[0].replica.core.is_ready)
    (leader,) = cluster.leaders()
    replaced, other, gone = [host for host in others if host is not leader]
    await replace_disk(leader, replaced)
    promotion = leader.replica.log.last.position
    await until(lambda: all(host.replica.core.commit_position >= promotion for host in (replaced, other)))
    for host in (leader, gone):
        host.crash()
    await asyncio.sleep(NOTICED_S)
    return replaced


@pytest.mark.parametrize("is_trimmed", [False, True])
@in_world
async def test_a_disk_in_doubt_with_frames_of_a_later_term_has_answered(is_trimmed: bool) -> None:
    """It was replaced, readmitted and promoted while this node was away. Of five it is needed: two are gone."""
    async with rotting(5) as (cluster, (away, *others)):
        away.crash()
        tear(away)
        replaced = await left_with_a_replaced_disk(cluster, others)
        if is_trimmed:
            begin_behind_the_end_of_others(replaced)
        await away.start()
        assert Hindrance.UNKNOWN_TAIL in away.replica.core.hindrances
        await until(lambda: replaced.id in away.replica.core.doubted)
        await until(lambda: bool(cluster.leaders()), within_s=30)


@pytest.mark.parametrize("doomed_frames", [1, 20], ids=["other log", "behind end"])
@in_world
async def test_the_earlier_leader_with_a_tail_that_nobody_got_counts_a_readmitted_disk_too(doomed_frames: int) -> None:
    """As test_a_disk_in_doubt_with_frames_of_a_later_term_has_answered, but ``away`` led, and its log ends in frames
    that nobody got: the answer is OTHER_LOG or BEHIND_END, which names no point."""
    async with rotting(5) as (cluster, (away, *others)):
        cluster.network.faults.partition([away.id], [host.id for host in others])
        last = Position(away.replica.log.last.position + doomed_frames)
        doomed = [away.ask(partial(append_one, away, b"nobody gets it %d" % at)) for at in range(doomed_frames)]
        await until(lambda: away.replica.log.durable_position > last - doomed_frames)
        for at in range(doomed_frames):
            doomed.append(away.ask(partial(append_one, away, b"nor this %d" % at)))
            await asyncio.sleep(0.01)
        away.crash()
        for each in doomed:
            each.exception()
        tear(away)
        cluster.network.mend()
        replaced = await left_with_a_replaced_disk(cluster, others)
        await away.start()
        assert Hindrance.UNKNOWN_TAIL in away.replica.core.hindrances
        assert away.replica.log.last.term == 1
        await until(lambda: replaced.id in away.replica.core.doubted)
        await until(lambda: bool(cluster.leaders()), within_s=60)


def forbid(host: SimHost) -> None:
    host.replica.core.set_may_lead(False, host.life.process.time() * 1000)


def allow(host: SimHost) -> None:
    host.replica.core.set_may_lead(True, host.life.process.time() * 1000)


@pytest.mark.parametrize("is_late", [False, True], ids=["all at once", "one of them later"])
@in_world
async def test_what_a_disk_in_doubt_alone_has_keeps_no_majority_of_the_others_from_electing(is_late: bool) -> None:
    """Five, of whom ``gone`` does not come back. It led terms 2 and 3; what it wrote in 3 is on ``replaced`` alone,
    whose disk everybody doubts. The other three are up, fully connected, heard everybody, and no frame in question was
    ever committed. ``away`` has the best log of the three."""
    async with rotting(5) as (cluster, (old, follower, gone, replaced, away)):
        faults = cluster.network.faults
        common = old.replica.log.last.position
        faults.partition([old.id, follower.id], [gone.id, replaced.id, away.id])
        for host in (replaced, away):
            forbid(host)
        doomed = old.ask(partial(append_one, old, b"never acknowledged"))
        await until(lambda: follower.replica.log.durable_position > common)
        for host in (old, follower):
            host.crash()
        doomed.exception()
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to == replaced.id, 1.0))
        await until(lambda: gone.leads and away.replica.log.durable_position > common)
        assert away.replica.log.last.term == gone.term == 2
        away.crash()
        tear(away)
        cluster.network.mend()
        faults.clear()
        lagging = {old.id, follower.id, replaced.id}
        faults.add(Rule(lambda _, to, what: isinstance(what, Append | Compare | Truncate) and to in lagging, 1.0))
        gone.crash()
        await asyncio.sleep(NOTICED_S)
        for host in (old, follower, gone):
            await host.start()
            if host is not gone:
                forbid(host)
        await until(lambda: gone.leads and gone.term > 2 and gone.replica.log.last.term == gone.term)
        replaced.crash()
        replaced.wipe()
        cluster.network.mend()
        faults.clear()
        lagging = {old.id, follower.id}
        faults.add(Rule(lambda _, to, what: isinstance(what, Append | Compare | Truncate) and to in lagging, 1.0))
        await replaced.start()
        await until(lambda: replaced.replica.log.last == gone.replica.log.last)
        assert gone.replica.log.last.term > 2
        for host in (gone, old, follower):
            host.crash()
        cluster.network.mend()
        faults.clear()
        await asyncio.sleep(NOTICED_S)
        for host in (old, away) if is_late else (old, follower, away):
            await host.start()
        await until(lambda: all(replaced.id in host.replica.core.doubted for host in (old, away)))
        if is_late:
            await asyncio.sleep(5)
            replaced.crash()
            await follower.start()
        await until(lambda: bool(cluster.leaders()), within_s=60)


@in_world
async def test_what_was_passed_over_for_a_leader_that_is_gone_is_taken_then() -> None:
    """Of three the leader is gone for good, and the third one lacks nothing but the patient's vote: for that, the
    patient must have what a learner has, and nobody else."""
    async with rotting() as (cluster, (leader, patient, third)):
        keeper = await learner(cluster, leader)
        faults = cluster.network.faults
        patient.crash()
        tear(patient)
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to == third.id, 1.0))
        doomed = leader.ask(partial(append_one, leader, b"a learner has it"))
        last = leader.replica.log.last.position + 1
        await until(lambda: keeper.replica.log.last.position >= last)
        faults.add(Rule(lambda _, to, what: isinstance(what, Compare | Append) and to == patient.id, 1.0))
        deaf = faults.add(Rule(lambda source, _, what: source == patient.id and isinstance(what, Fetch), 1.0))
        await patient.start()
        await until(lambda: patient.replica.core.leader_id == leader.id)
        faults.remove(deaf)
        await until(lambda: patient.replica.core.least_end.position >= last)
        leader.crash()
        doomed.exception()
        cluster.network.mend()
        await until(lambda: bool(cluster.leaders()))


@in_world
async def test_who_was_left_behind_by_all_that_it_knows_votes_with_a_majority_of_those() -> None:
    """By what is left of its log nobody but the founder votes, whose disk is replaced; what came since is trimmed."""
    async with rotting(1, appends=5) as (cluster, (founder,)):
        voter = await learner(cluster, founder)
        await promote(founder, voter)
        patient = await learner(cluster, founder)
        await asyncio.sleep(1)
        promoted = await promote_and_append(founder, patient)
        await until(lambda: patient.replica.log.durable_position > promoted, poll_s=BEFORE_A_MARK_S)
        for host in (founder, voter, patient):
            host.crash()
        lose(patient, promoted)
        founder.wipe()
        await founder.start()
        await start_idle(voter)
        begin_behind_the_end_of_others(voter)
        allow(voter)
        await patient.start()
        assert patient.id not in patient.replica.core.membership.voters
        await until(lambda: voter.leads)


async def replace_member(cluster: SimulatedCluster, leader: SimHost, gone: SimHost) -> SimHost:
    """Another host is added and promoted; ``gone`` is removed, and switched off."""
    new = cluster.new_host()
    new.peers = {str(leader.id): leader.address}
    await new.start()
    await leader.ask(partial(leader.replica.members.add, new.id, new.address))
    await promote(leader, new)
    await leader.ask(partial(leader.replica.members.remove, gone.id))
    await gone.stop()
    return new


@pytest.mark.parametrize("is_trimmed", [False, True])
@in_world
async def test_a_voter_that_came_while_it_was_away_is_asked_too(is_trimmed: bool) -> None:
    """Of three, one was replaced meanwhile, and the leader dies: its successor is one whom the patient's log does not
    name, and whose term is the patient's own."""
    async with rotting() as (cluster, (leader, patient, gone)):
        await cut_and_noticed(patient)
        new = await replace_member(cluster, leader, gone)
        await append(leader, 5)
        await until(lambda: new.replica.log.last == leader.replica.log.last)
        assert new.replica.core.membership.voters == {leader.id, patient.id, new.id}
        assert new.term == 1
        leader.crash()
        await asyncio.sleep(NOTICED_S)
        if is_trimmed:
            begin_behind_the_end_of_others(new)
        await patient.start()
        assert Hindrance.UNKNOWN_TAIL in patient.replica.core.hindrances
        await until(lambda: new.leads)


@in_world
async def test_a_log_of_a_later_term_gets_its_vote_whoever_its_own_log_says_the_members_are() -> None:
    """The patient led, and its log ends in a frame that nobody got, so it cannot take what the others have. One of them
    was replaced, and the other is gone."""
    async with rotting() as (cluster, (patient, *others)):
        cluster.network.faults.partition([patient.id], [host.id for host in others])
        last = Position(patient.replica.log.last.position + 1)
        doomed = patient.ask(partial(append_one, patient, b"nobody gets it"))
        await until(lambda: patient.replica.log.durable_position == last, poll_s=0.001)
        patient.crash()
        doomed.exception()
        tear(patient)
        cluster.network.mend()
        await asyncio.sleep(NOTICED_S)
        await until(lambda: bool(cluster.leaders()) and cluster.leaders()[0].replica.core.is_ready)
        (leader,) = cluster.leaders()
        (gone,) = [host for host in others if host is not leader]
        new = await replace_member(cluster, leader, gone)
        await append(leader, 5)
        await until(lambda: new.replica.log.last == leader.replica.log.last)
        leader.crash()
        await asyncio.sleep(NOTICED_S)
        await patient.start()
        await until(lambda: new.leads)


@in_world
async def test_of_a_trimmed_log_what_it_cannot_have_acknowledged_is_not_required() -> None:
    """A leader of a later term, that has trimmed what the patient knows of, writes a frame that nobody else gets, and
    dies when the patient has heard of it. The third one has all that was ever committed."""
    async with rotting(appends=20) as (cluster, (patient, *others)):
        await cut_and_noticed(patient)
        await until(lambda: bool(cluster.leaders()) and cluster.leaders()[0].replica.core.is_ready)
        (leader,) = cluster.leaders()
        (third,) = [host for host in others if host is not leader]
        await append(leader, 900)
        await trim(cluster, leader, 800)
        await until(lambda: all(host.replica.log.state.start.position > 100 for host in others))
        await append(leader, 1)
        await until(lambda: third.replica.log.last == leader.replica.log.last)
        faults, committed = cluster.network.faults, leader.replica.core.commit_position
        faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, Reset), 1.0))
        faults.add(Rule(lambda _, to, what: to == third.id and isinstance(what, Append), 1.0))
        doomed = leader.ask(partial(append_one, leader, b"nobody gets it"))
        await until(lambda: leader.replica.log.last.position > committed, poll_s=0.001)
        starting = asyncio.ensure_future(patient.start())
        await until(lambda: patient.is_up and patient.replica._tail_query._answered == {leader.id}, poll_s=0.001)  # type: ignore[union-attr]
        await starting
        leader.crash()
        doomed.exception()
        faults.clear()
        await until(lambda: bool(cluster.leaders()))


@in_world
async def test_who_has_no_room_for_the_end_of_its_log_has_heard_it_all_the_same() -> None:
    """The third one owes a catch-up, and votes when a leader has given it one: the first is elected by the patient."""
    async with rotting(durability=Durability.INTERVAL) as (cluster, (leader, patient, third)):
        patient.crash(power=False)
        tear(patient)
        await asyncio.sleep(NOTICED_S)
        await append(leader, 200)
        leader.crash(power=False)
        third.crash()  # the power: it owes
        for path in [path for path in patient.platter._names if path.endswith("/reserve")]:
            del patient.platter._names[path]  # it was full before: what was kept for that is used
        patient.platter.capacity_bytes = patient.platter.used_bytes
        await asyncio.sleep(NOTICED_S)
        for host in (leader, patient, third):
            await host.start()
        assert Hindrance.UNKNOWN_TAIL in patient.replica.core.hindrances
        assert Hindrance.OWES_CATCH_UP in third.replica.core.hindrances
        await until(lambda: bool(cluster.leaders()) and cluster.leaders()[0].replica.core.is_ready, within_s=60)
        await until(lambda: not third.replica.core.hindrances)


@in_world
async def test_what_a_disk_in_doubt_alone_had_is_not_required_once_a_leader_has_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader of the patient's term that has not noticed yet that another was elected brings it up to its own."""
    async with rotting(5) as (cluster, (leader, patient, doubted, *others)):
        faults = cluster.network.faults
        await patient.ask(partial(doubt, patient, doubted))
        await cut_and_noticed(patient)
        for host in others:
            forbid(host)
        leadership = leader.replica.core.leadership
        assert leadership is not None
        monkeypatch.setattr(leadership, "hears_quorum", lambda _: True)
        faults.partition([leader.id], [doubted.id, *(host.id for host in others)])
        faults.partition([patient.id], [host.id for host in others])
        faults.add(Rule(lambda source, _, what: source == doubted.id and isinstance(what, Append | Compare), 1.0))
        faults.add(Rule(lambda source, _, what: source == doubted.id and isinstance(what, Heartbeat), 1.0))
        faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, VoteRequest), 1.0))
        late = faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, Append | Compare), 1.0))
        await until(lambda: doubted.replica.log.last.term > leader.term)
        await patient.start()
        await until(lambda: patient.replica.core.lacks_end)
        faults.remove(late)
        await until(lambda: patient.replica._tail_query is None)
        assert not patient.replica.core.lacks_end
        leader.crash()


# What is durable of it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True])
@in_world
async def test_who_was_killed_before_it_asked_asks_after_the_next_start(power: bool) -> None:
    async with rotting() as (cluster, (leader, patient, other)):
        await other.stop()
        last = await cut_short(leader, patient)
        await patient.start()
        await asyncio.sleep(1)
        patient.crash(power=power)
        await patient.start()
        assert patient.replica.log.recovery.torn_bytes == 0  # type: ignore[attr-defined]
        await asyncio.sleep(10)
        assert Hindrance.UNKNOWN_TAIL in patient.replica.core.hindrances
        await leader.start()
        await until(lambda: bool(cluster.leaders()))
        assert patient.replica.log.last.position >= last
        await until(lambda: not patient.life.node._identity.tail_is_unknown)  # type: ignore[union-attr]
        await patient.stop()
        await patient.start()
        assert not patient.replica.core.hindrances


@pytest.mark.parametrize("how", ["stopped", "killed", "without power"])
@in_world
async def test_what_was_acknowledged_outlives_a_restart_of_who_took_another_branch(how: str) -> None:
    """The one that is right is up by then, and tells whoever asks it."""
    async with rotting() as (cluster, hosts):
        old, patient, right = hosts
        branch = await with_two_branches(cluster, hosts)
        await asyncio.sleep(NOTICED_S)
        await start_idle(old)
        await start_idle(patient)
        await until(lambda: patient.replica.log.last == old.replica.log.last)
        await until(lambda: patient.replica.log.durable_position == branch)
        await start_idle(right)
        if how == "stopped":
            await patient.stop()
        else:
            patient.crash(power=how == "without power")
        await patient.start()
        await until(lambda: Hindrance.UNKNOWN_TAIL not in patient.replica.core.hindrances)
        allow(old)
        await asyncio.sleep(10)
        assert not old.leads, "elected without what was acknowledged"
        allow(right)
        await until(lambda: right.leads)


@in_world
async def test_a_leader_that_has_not_compared_the_log_since_the_start_does_not_say_that_all_is_here() -> None:
    """It may commit by what was acknowledged before the start. Five nodes: when it goes, together with the one other
    that has the frame, the patient is one of three that are left."""
    async with rotting(5) as (cluster, (leader, patient, third, *_)):
        faults = cluster.network.faults
        await patient.stop()  # in order: its mark says that all it has is committed
        await patient.start()
        await level(cluster)
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to != patient.id, drop_share=1.0))
        appended = leader.ask(partial(append_one, leader, b"acknowledged in the end"))
        last = Position(leader.replica.log.last.position + 1)
        leadership = leader.replica.core.leadership
        assert leadership is not None
        await until(lambda: leadership.followers[patient.id].match >= last, poll_s=BEFORE_A_MARK_S)
        patient.crash()
        lose(patient, last)
        faults.add(Rule(lambda _, to, what: isinstance(what, Compare) and to == patient.id, drop_share=1.0))
        deaf = faults.add(Rule(lambda source, _, what: source == patient.id and isinstance(what, Fetch), 1.0))
        await patient.start()
        await until(lambda: patient.replica.core.leader_id == leader.id)
        faults.remove(deaf)
        await asyncio.sleep(2)
        faults.clear()
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to != third.id, drop_share=1.0))
        faults.add(Rule(lambda _, to, what: isinstance(what, Compare) and to == patient.id, drop_share=1.0))
        await appended  # by the leader, the third, and what the patient acknowledged before
        leader.crash()
        third.crash()
        faults.clear()
        await asyncio.sleep(10)
        assert not cluster.leaders()
        await third.start()
        await until(lambda: bool(cluster.leaders()))
        assert cluster.leaders()[0].replica.log.last.position >= last
        await leader.start()
        await level(cluster)
        assert not patient.replica.core.hindrances


@pytest.mark.parametrize("is_deaf", [False, True])
@in_world
async def test_who_was_removed_is_let_go_when_the_tail_is_known(is_deaf: bool) -> None:
    async with rotting() as (cluster, (leader, patient, _)):
        gone = cluster.new_host()
        gone.peers = {str(leader.id): leader.address}
        await gone.start()
        await leader.ask(partial(leader.replica.members.add, gone.id, gone.address))
        await level(cluster)
        patient.crash()
        tear(patient)
        await leader.ask(partial(leader.replica.members.remove, gone.id))
        await append(leader, 3)
        if is_deaf:
            cluster.network.faults.add(
                Rule(lambda source, _, what: source == patient.id and isinstance(what, Fetch), 1.0)
            )
        await patient.start()
        core = patient.replica.core
        await until(lambda: not core.hindrances and core.commit_position == leader.replica.core.commit_position)
        await until(lambda: not patient.knows(gone.id)[0])  # nobody appends
