"""What a leader is asked for, and is so already by its log: it says so only where nobody else leads by then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dledger.common.errors import Code
from dledger.common.types import NodeId, PreferredLeader
from dledger.group.replica import Replica
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import virtual_time
from tests.unit.group.changes import refusal_of

Ask = Callable[[Replica], Awaitable[object]]
N9 = NodeId("n9")


async def deposed(cluster: SimCluster) -> tuple[SimNode, SimNode]:
    """A leader that does not know yet that it is none, and who leads: its links close, which the others notice, and
    stay cut; it steps down half a second later."""
    old = await cluster.leader()
    await cluster.level()
    for node in cluster.others(old):
        cluster.faults.cut_both(old.id, node.id)
        cluster.network.disconnect(old.id, node.id)
    await cluster.until(lambda: any(node.leads and node.replica.core.is_ready for node in cluster.others(old)))
    assert old.leads
    return old, next(node for node in cluster.others(old) if node.leads)


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        pytest.param(
            lambda replica: replica.settings.set_preferred([PreferredLeader(NodeId("n0"), 5)]),
            lambda replica: replica.settings.set_preferred([]),
            id="preferred leaders",
        ),
        pytest.param(
            lambda replica: replica.retention.set(60_000, None),
            lambda replica: replica.retention.set(0, None),
            id="retention",
        ),
        pytest.param(
            lambda replica: replica.members.add(N9, "n9:1"),
            lambda replica: replica.members.remove(N9),
            id="members",
        ),
    ],
)
@virtual_time
async def test_a_leader_that_is_none_any_more_does_not_say_that_things_are_so_already(change: Ask, undo: Ask) -> None:
    async with SimCluster(3, seed=1) as cluster:
        old, new = await deposed(cluster)
        await change(new.replica)
        assert await refusal_of(undo(old.replica)) is Code.NOT_LEADER


@virtual_time
async def test_a_leader_that_is_none_any_more_does_not_say_that_it_leads_already() -> None:
    async with SimCluster(3, seed=1) as cluster:
        old, _ = await deposed(cluster)
        assert await refusal_of(old.replica.handover.transfer(NodeId(old.id))) is Code.NOT_LEADER


@virtual_time
async def test_what_is_so_already_is_said_by_a_leader_that_a_quorum_follows() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        last = leader.log.last.position
        await leader.replica.settings.set_preferred([])
        change = await leader.replica.members.remove(N9)
        assert change.position == 0
        assert leader.log.last.position == last, "nothing was written"
