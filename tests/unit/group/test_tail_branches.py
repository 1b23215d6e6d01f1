"""What follows a cut differs from log to log: what is required then, and taken, and whose word counts."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dledger.common.types import Position
from dledger.raft.messages import (
    Append,
    Compare,
    Fetch,
    Heartbeat,
    Truncate,
    VoteRequest,
)
from dledger.raft.state import VoteBlocker
from dledger.testing.network_faults import Rule
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.host import SimHost
from tests.simulation.process import in_world
from tests.unit.group.rot import (
    append_one,
    learner,
    level,
    replace_disk,
    rotting,
    until,
)
from tests.unit.group.tails import (
    NOTICED_S,
    allow,
    begin_behind_the_end_of_others,
    cut_and_noticed,
    cut_short,
    doubt,
    forbid,
    let_answers_arrive,
    start_idle,
    tear,
    with_two_branches,
)


@in_world
async def test_a_disk_in_doubt_gives_back_what_it_has_though_its_word_is_no_answer() -> None:
    async with rotting() as (_, (leader, patient, other)):
        await patient.ask(partial(doubt, patient, other))
        last = await cut_short(leader, patient)
        await patient.start()
        await until(lambda: patient.replica.log.last.position >= last)
        assert other.id in patient.replica.core.doubted
        assert VoteBlocker.UNKNOWN_TAIL in patient.replica.core.vote_blockers


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
        let_answers_arrive(cluster, patient)
        await start_idle(patient)
        core = patient.replica.core
        assert VoteBlocker.UNKNOWN_TAIL in core.vote_blockers
        if not is_there:
            await until(lambda: patient.replica._tail_query._ends.keys() == {old.id})  # type: ignore[union-attr]
            await start_idle(right)
        await until(lambda: core.vote_blockers == {VoteBlocker.SLOW_DISK})
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
        assert VoteBlocker.UNKNOWN_TAIL in away.replica.core.vote_blockers
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
        assert VoteBlocker.UNKNOWN_TAIL in away.replica.core.vote_blockers
        assert away.replica.log.last.term == 1
        await until(lambda: replaced.id in away.replica.core.doubted)
        await until(lambda: bool(cluster.leaders()), within_s=60)


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
        await until(lambda: patient.replica.core.min_candidate_end.position >= last)
        leader.crash()
        doomed.exception()
        cluster.network.mend()
        await until(lambda: bool(cluster.leaders()))


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
