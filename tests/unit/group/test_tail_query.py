"""A node that cut the end of its log asks the others what was there before it votes; nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest

from dledger.common.config import Timings
from dledger.common.errors import ChangeRefused
from dledger.common.types import Durability, Position
from dledger.raft.messages import (
    Append,
    Compare,
    Fetch,
    FetchResponse,
    Heartbeat,
    Reset,
)
from dledger.raft.state import VoteBlocker
from dledger.testing.network_faults import Rule
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.platter import SimFile
from tests.simulation.process import in_world
from tests.unit.group.rot import (
    append,
    append_one,
    frames,
    learner,
    level,
    places,
    promote,
    promote_and_append,
    rot,
    rotting,
    trim,
    until,
)
from tests.unit.group.tails import (
    BEFORE_A_MARK_S,
    NOTICED_S,
    allow,
    begin_behind_the_end_of_others,
    cut_and_noticed,
    cut_short,
    forbid,
    let_answers_arrive,
    lose,
    make_learner,
    start_idle,
    tear,
)


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
        assert VoteBlocker.UNKNOWN_TAIL in patient.replica.core.vote_blockers
        await leader.start()
        await until(lambda: patient.replica.log.last.position >= last)
        assert not cluster.leaders(), "it had it before anybody could be elected"
        await until(lambda: bool(cluster.leaders()))
        assert not patient.replica.core.vote_blockers


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
        assert VoteBlocker.UNKNOWN_TAIL in patient.replica.core.vote_blockers


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
        assert VoteBlocker.UNKNOWN_TAIL in core.vote_blockers
        await leader.start()
        await other.start()
        await until(lambda: VoteBlocker.UNKNOWN_TAIL not in core.vote_blockers)


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
        await start_idle(other)  # before the log is open the patient votes by the end that it can read
        await patient.start()
        await until(lambda: patient.is_up)
        assert patient.replica.log.last.position == last - 1
        assert VoteBlocker.UNKNOWN_TAIL in patient.replica.core.vote_blockers
        allow(other)
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
        assert VoteBlocker.UNKNOWN_TAIL in hosts[1].replica.core.vote_blockers
        assert not cluster.leaders()


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
        await until(lambda: not patient.replica.core.vote_blockers)
        await asyncio.sleep(5)
        assert not cluster.leaders()
        allow(holder)
        await until(lambda: bool(cluster.leaders()))
        assert holder.leads


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
        assert VoteBlocker.UNKNOWN_TAIL in patient.replica.core.vote_blockers


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
        assert VoteBlocker.UNKNOWN_TAIL in patient.replica.core.vote_blockers, "two of five voters have answered"


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
        assert VoteBlocker.UNKNOWN_TAIL in patient.replica.core.vote_blockers
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
        let_answers_arrive(cluster, patient)
        # The leader is the first to answer.
        faults.add(Rule(lambda _, to, what: to == third.id and isinstance(what, Fetch), 1.0))
        doomed = leader.ask(partial(append_one, leader, b"nobody gets it"))
        await until(lambda: leader.replica.log.last.position > committed, poll_s=0.001)
        starting = asyncio.ensure_future(patient.start())
        await until(lambda: patient.is_up and patient.replica._tail_query._answered == {leader.id}, poll_s=0.001)  # type: ignore[union-attr]
        await starting
        forbid(third)
        leader.crash()
        doomed.exception()
        faults.clear()
        await until(lambda: VoteBlocker.UNKNOWN_TAIL not in patient.replica.core.vote_blockers)
        allow(third)
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
        assert VoteBlocker.UNKNOWN_TAIL in patient.replica.core.vote_blockers
        assert VoteBlocker.OWES_CATCH_UP in third.replica.core.vote_blockers
        await until(lambda: bool(cluster.leaders()) and cluster.leaders()[0].replica.core.is_ready, within_s=60)
        await until(lambda: not third.replica.core.vote_blockers)
