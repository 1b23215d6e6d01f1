"""The majority that must make progress at the end has nobody in it who cannot take part."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

from dledger.raft.messages import Append, Compare, Fetch
from dledger.testing.network_faults import Rule
from tests.simulation.nemesis import Nemesis
from tests.simulation.process import in_world
from tests.simulation.run import Outcome, Seed
from tests.unit.group.rot import append, append_one, rotting, until
from tests.unit.group.tails import tear

CHOICES = 20


@in_world
async def test_a_node_whose_disk_failed_a_moment_ago_is_started_again_before_the_majority_is_chosen() -> None:
    async with rotting() as (cluster, (leader, patient, _)):
        seed = Seed(1, cluster, Outcome(1))
        patient.mood.fails_next_sync = True
        await append(leader, 1)
        await until(lambda: not patient.mood.fails_next_sync, poll_s=0.0001)
        life = patient.life
        checking = asyncio.ensure_future(seed._check_always())
        await seed._nemesis.settle()
        checking.cancel()
        assert patient.life is not life
        assert patient.is_up


@in_world
async def test_a_node_that_lacks_what_it_may_have_acknowledged_is_not_chosen() -> None:
    async with rotting() as (cluster, (leader, patient, other)):
        faults = cluster.network.faults
        faults.add(Rule(lambda _source, _to, what: isinstance(what, Append), drop_share=1.0))
        doomed = leader.ask(partial(append_one, leader, b"never acknowledged"))
        patient.crash()
        tear(patient)  # as a write of that frame which the power cut
        faults.add(Rule(lambda _, to, what: to == patient.id and isinstance(what, Compare), drop_share=1.0))
        early = Rule(lambda source, _, what: source == patient.id and isinstance(what, Fetch), drop_share=1.0)
        faults.add(early)
        await patient.start()
        await until(lambda: patient.replica.leader_id == leader.id)
        faults.remove(early)
        await until(lambda: patient.replica.core.lacks_end)
        chosen = [Nemesis(cluster, Random(seed)).connected_majority() for seed in range(CHOICES)]
        assert {host.id for hosts in chosen for host in hosts} == {leader.id, other.id}
        leader.crash()
        assert doomed.exception() is not None
