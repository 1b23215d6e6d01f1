"""A founder that was the only voter once, and whose log is cut to that time, is not alone because of it."""

from __future__ import annotations

import asyncio
from functools import partial

from dledger.common.types import GENESIS
from tests.simulation.process import in_world
from tests.unit.group.rot import append, level, rot, rotting, trim, until


@in_world
async def test_a_founder_whose_log_is_cut_to_where_it_was_alone_does_not_lead_beside_the_others() -> None:
    async with rotting(1, appends=5) as (cluster, (patient,)):
        for _ in range(2):
            host = cluster.new_host()
            host.peers = {str(member.id): member.peer_address for member in patient.replica.log.state.members}
            await host.start()
            await patient.ask(partial(patient.replica.members.add, host.id, host.address))
            await level(cluster)
            await patient.ask(partial(patient.replica.members.promote, host.id))
            await level(cluster)
        await append(patient, 20)
        await level(cluster)
        await asyncio.sleep(0.1)
        await patient.stop()
        rot(patient, 4)  # from before anybody was added
        patient.has_rotted = True
        await until(lambda: bool(cluster.leaders()) and cluster.leaders()[0].replica.core.is_ready)
        (leader,) = cluster.leaders()
        await append(leader, 400)
        before = leader.replica.commit_index - 20
        await trim(cluster, leader, before)
        patient.peers = {str(host.id): host.address for host in cluster.hosts.values()}
        patient.promised = GENESIS  # what is cut was committed, and trimmed by the others
        await patient.start()
        await until(lambda: patient.is_up)
        await asyncio.sleep(5)
        assert cluster.leaders() == [leader]
        await level(cluster)
