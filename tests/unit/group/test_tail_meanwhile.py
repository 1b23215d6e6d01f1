"""What the others write, cut and trim while a node asks them for the end of its log."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dledger.common.types import Position
from dledger.raft.messages import (
    Append,
    Compare,
    Fetch,
    FetchResponse,
    Heartbeat,
    Reset,
    Truncate,
)
from dledger.raft.state import VoteBlocker
from dledger.testing.network_faults import Rule
from tests.simulation.host import SimHost
from tests.simulation.process import in_world
from tests.unit.group.rot import (
    append,
    append_one,
    rotting,
    trim,
    until,
)
from tests.unit.group.tails import (
    BEFORE_A_MARK_S,
    NOTICED_S,
    allow,
    cut_and_noticed,
    cut_short,
    forbid,
    lose,
    start_idle,
    tear,
)


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
        await until(lambda: not patient.replica.core.vote_blockers)
        assert patient.replica.log.last.term == 1


# Where the others differ ---------------------------------------------------------------------------------------------


@in_world
async def test_what_a_leader_wrote_since_it_answered_and_nobody_got_is_not_required() -> None:
    """The patient cannot have acknowledged it before: the leader had answered without it in this start."""
    async with rotting() as (cluster, (leader, patient, third)):
        faults = cluster.network.faults
        await cut_and_noticed(patient)
        await append(leader, 30)
        faults.add(Rule(lambda _, to, what: isinstance(what, Append) and to == patient.id, 1.0))
        await patient.start()
        await until(lambda: VoteBlocker.UNKNOWN_TAIL not in patient.replica.core.vote_blockers, poll_s=0.001)
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
        await until(lambda: VoteBlocker.UNKNOWN_TAIL not in patient.replica.core.vote_blockers)
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


async def write_until(leader: SimHost, is_enough: asyncio.Event) -> None:
    while not is_enough.is_set():
        await append_one(leader, b"load")
        await asyncio.sleep(0.002)


@in_world
async def test_a_follower_that_is_written_on_keeps_nobody_from_asking_the_leader() -> None:
    """It gets more while each answer is on its way. The leader comes later, and pushes nothing here."""
    async with rotting(5) as (cluster, (leader, patient, follower, *_)):
        faults = cluster.network.faults
        await cut_and_noticed(patient)
        slow = {patient.id, follower.id}
        faults.add(Rule(lambda source, to, what: {source, to} == slow and isinstance(what, Fetch), delay_s=0.04))
        away = {patient.id, leader.id}
        gone = faults.add(Rule(lambda source, to, _: {source, to} == away, 1.0))
        faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, Append | Compare), 1.0))
        is_enough = asyncio.Event()
        loads = [leader.ask(partial(write_until, leader, is_enough)) for _ in range(4)]
        await asyncio.sleep(0.5)
        await patient.start()
        core = patient.replica.core
        await asyncio.sleep(2.5)
        assert VoteBlocker.UNKNOWN_TAIL in core.vote_blockers
        faults.remove(gone)
        await until(lambda: VoteBlocker.UNKNOWN_TAIL not in core.vote_blockers)
        assert not any(load.done() for load in loads)
        is_enough.set()
        await asyncio.gather(*loads)


@in_world
async def test_what_a_leader_had_in_flight_when_it_died_is_taken_with_its_answer() -> None:
    """The patient hears the answer before it hears that this one leads. Else it would wait for the leader's pushes."""
    async with rotting() as (cluster, (leader, patient, _)):
        faults = cluster.network.faults
        await cut_and_noticed(patient)
        faults.add(Rule(lambda _, _to, what: isinstance(what, Append | Compare), 1.0))
        faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, Heartbeat), 1.0))
        before = leader.replica.log.last.position
        doomed = leader.ask(partial(append_one, leader, b"nobody gets it"))
        await until(lambda: leader.replica.log.durable_position > before)
        await patient.start()
        await until(lambda: VoteBlocker.UNKNOWN_TAIL not in patient.replica.core.vote_blockers)
        assert patient.replica.log.last == leader.replica.log.last
        leader.crash()
        assert doomed.exception() is not None
        cluster.network.mend()
        faults.clear()
        await until(lambda: bool(cluster.leaders()), within_s=120)


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
        heard = list[FetchResponse]()

        def hear(source: object, to: object, what: object) -> bool:
            if (source, to) == (heir.id, patient.id) and isinstance(what, FetchResponse):
                heard.append(what)
            return False

        faults.add(Rule(hear))
        await until(lambda: bool(heard))
        await asyncio.sleep(3)
        heir.crash()
        cluster.network.mend()
        faults.clear()
        # Whoever fetched it from the patient could lead as well.
        faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, Fetch), 1.0))
        for host in (old, patient, fifth):
            allow(host)
        await asyncio.sleep(20)
        assert not [host for host in cluster.leaders() if host is not patient]


@pytest.mark.parametrize("leader_answers", [True, False])
@in_world
async def test_a_log_that_is_trimmed_between_two_answers_is_still_one_to_vote_for(leader_answers: bool) -> None:
    """The third one is asked first. The leader answers later, or never."""
    async with rotting() as (cluster, (leader, patient, third)):
        faults = cluster.network.faults
        await cut_and_noticed(patient)
        await append(leader, 30)
        faults.add(Rule(lambda _, to, what: isinstance(what, Append | Compare | Reset) and to == patient.id, 1.0))
        if not leader_answers:
            faults.cut_both(leader.id, patient.id)
        answered = list[object]()

        def is_late(source: object, to: object, what: object) -> bool:
            """All but the first question that each of them answers; the third one is the first to answer."""
            if source != patient.id or not isinstance(what, Fetch):
                return False
            return to in answered or (to == leader.id and third.id not in answered)

        def hear(source: object, to: object, what: object) -> bool:
            if to == patient.id and isinstance(what, FetchResponse):
                answered.append(source)
            return False

        late = faults.add(Rule(is_late, 1.0))
        faults.add(Rule(hear))
        await patient.start()
        needed = {leader.id, third.id} if leader_answers else {third.id}
        await until(lambda: needed <= set(answered), poll_s=0.001)
        await append(leader, 900)
        await trim(cluster, leader, 800)
        await until(lambda: all(host.replica.log.state.start.position > 100 for host in (leader, third)))
        await until(lambda: third.replica.log.last == leader.replica.log.last)
        faults.remove(late)
        await until(lambda: VoteBlocker.UNKNOWN_TAIL not in patient.replica.core.vote_blockers)
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
        await until(lambda: VoteBlocker.UNKNOWN_TAIL not in patient.replica.core.vote_blockers)
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
