"""A log's cut is known to later starts, until a leader has brought the log up to its own."""

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
)
from dledger.raft.state import VoteBlocker
from dledger.testing.network_faults import Rule
from tests.simulation.debts import lacks_tail
from tests.simulation.process import in_world
from tests.unit.group.rot import (
    append,
    append_one,
    level,
    rot,
    rotting,
    until,
)
from tests.unit.group.tails import (
    BEFORE_A_MARK_S,
    NOTICED_S,
    allow,
    cut_short,
    lose,
    start_idle,
    tear,
    with_two_branches,
)


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
        assert "default" in patient.life.node.groups.recovering  # type: ignore[union-attr]
        await other.start()
        await asyncio.sleep(10)
        assert not [host for host in cluster.leaders() if host.replica.log.last.position < last]
        allow(leader)
        await level(cluster)


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
        assert VoteBlocker.UNKNOWN_TAIL in patient.replica.core.vote_blockers
        await leader.start()
        await until(lambda: bool(cluster.leaders()))
        assert patient.replica.log.last.position >= last
        await until(lambda: not lacks_tail(patient))
        await patient.stop()
        await patient.start()
        assert not patient.replica.core.vote_blockers


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
        await until(lambda: VoteBlocker.UNKNOWN_TAIL not in patient.replica.core.vote_blockers)
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
        assert not patient.replica.core.vote_blockers


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
        await until(lambda: not core.vote_blockers and core.commit_position == leader.replica.core.commit_position)
        await until(lambda: not patient.knows(gone.id)[0])  # nobody appends
