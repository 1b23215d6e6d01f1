"""Preferred leaders lead when they can, and are never waited for when they cannot."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from dledger.common.config import Limits, NodeConfig
from dledger.common.errors import Code
from dledger.common.types import DEFAULT_GROUP, NodeId, PreferredLeader
from dledger.group.leader.members import Change
from dledger.node.node import Node
from dledger.raft.messages import Append, TakeLeadership, VoteRequest
from dledger.raft.rendezvous import ranked
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode, outcome
from tests.support.virtual_time import virtual_time
from tests.unit.group.changes import begin_removal


async def prefer(cluster: SimCluster, **priorities: int) -> SimNode:
    """Returns who led when it was set."""
    leader = await cluster.leader()
    chosen = [PreferredLeader(NodeId(node_id), priority) for node_id, priority in priorities.items()]
    await leader.replica.settings.set_preferred(chosen)
    return leader


def follower_of(cluster: SimCluster, leader: SimNode) -> SimNode:
    return cluster.others(leader)[0]


def takes(cluster: SimCluster) -> list[float]:
    """When a TAKE was sent."""
    times: list[float] = []

    def note(_source: object, _target: object, message: object) -> bool:
        if isinstance(message, TakeLeadership):
            times.append(asyncio.get_running_loop().time())
        return False

    cluster.faults.add(Rule(note))
    return times


@virtual_time
async def test_the_leadership_goes_to_the_preferred_node_once_it_was_healthy_for_a_while() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        preferred = follower_of(cluster, leader)
        await prefer(cluster, **{preferred.id: 10})
        took_s = await cluster.until(lambda: preferred.leads)
        assert 3 <= took_s < 6


@virtual_time
async def test_the_highest_priority_that_is_there_leads() -> None:
    async with SimCluster(5) as cluster:
        await prefer(cluster, n1=10, n2=5)
        await cluster.until(lambda: cluster[1].leads)
        cluster[1].crash()
        await cluster.until(lambda: cluster[2].leads, within_s=15)
        await cluster[1].start()
        await cluster.until(lambda: cluster[1].leads, within_s=15)


@virtual_time
async def test_a_preferred_leader_that_was_killed_leads_again_when_it_is_back() -> None:
    async with SimCluster(3) as cluster:
        await prefer(cluster, n1=10)
        for _ in range(3):
            await cluster.until(lambda: cluster[1].leads, within_s=15)
            cluster[1].crash()
            leader = await cluster.leader()
            assert leader is not cluster[1]
            await leader.append(b"x")
            await cluster[1].start()


@virtual_time
async def test_nobody_is_preferred_after_a_clear() -> None:
    async with SimCluster(3) as cluster:
        await prefer(cluster, n1=10)
        await cluster.until(lambda: cluster[1].leads)
        await prefer(cluster)
        await cluster[1].replica.handover.transfer(NodeId("n2"))
        await asyncio.sleep(30)
        assert cluster[2].leads


@virtual_time
async def test_a_node_that_comes_and_goes_is_not_handed_the_leadership() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        preferred = follower_of(cluster, leader)
        await prefer(cluster, **{preferred.id: 10})
        for _ in range(10):
            await asyncio.sleep(2)
            cluster.network.disconnect(leader.id, preferred.id)
            preferred.crash()
            await asyncio.sleep(1)
            await preferred.start()
        assert leader.leads


@virtual_time
async def test_the_leadership_never_goes_through_a_node_that_lags() -> None:
    async with SimCluster(3, limits=Limits(max_transfer_lag_frames=10)) as cluster:
        leader = await cluster.leader()
        preferred = follower_of(cluster, leader)
        slow = cluster.faults.add(
            Rule(lambda _s, target, m: target == preferred.id and isinstance(m, Append), drop_share=1)
        )
        for index in range(50):
            await leader.append(b"%d" % index)
        await prefer(cluster, **{preferred.id: 10})
        sent = takes(cluster)
        await asyncio.sleep(30)
        assert leader.leads
        assert sent == []
        cluster.faults.remove(slow)
        await cluster.until(lambda: preferred.leads)


@virtual_time
async def test_the_leadership_does_not_go_to_a_preferred_node_that_stands_still() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        preferred = follower_of(cluster, leader)
        await cluster.level()
        preferred.freeze()
        await prefer(cluster, **{preferred.id: 10})
        sent = takes(cluster)
        await asyncio.sleep(30)
        assert sent == []
        preferred.thaw()
        await cluster.until(lambda: preferred.leads)


@virtual_time
async def test_a_preferred_node_that_cannot_be_elected_is_left_alone_for_longer_each_time_and_appends_go_on() -> None:
    """DLedger's #85 and #247: the candidate that is to take over never wins."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        preferred = follower_of(cluster, leader)
        await prefer(cluster, **{preferred.id: 10})
        cluster.faults.add(Rule(lambda s, _t, m: s == preferred.id and isinstance(m, VoteRequest), drop_share=1))
        sent = takes(cluster)
        for _ in range(300):
            leader = await cluster.leader(within_s=10)
            await outcome(leader.append(b"x"))
            await asyncio.sleep(1)
        waits = [after - before for before, after in pairwise(sent)]
        assert 3 <= len(sent) <= 7, sent
        assert waits == sorted(waits)
        assert waits[0] >= 5
        assert leader.commit_index > 250


@virtual_time
async def test_a_preferred_node_that_ignores_the_take_costs_one_election_timeout_at_a_time() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        preferred = follower_of(cluster, leader)
        await prefer(cluster, **{preferred.id: 10})
        cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, TakeLeadership), drop_share=1))
        outcomes: list[object] = []
        for _ in range(1200):
            outcomes.append(await outcome(leader.append(b"x")) if leader.leads else Code.NOT_LEADER)
            await asyncio.sleep(0.05)
        refused = outcomes.count(Code.LEADER_TRANSFERRING)
        assert outcomes.count(Code.NOT_LEADER) == 0
        assert refused * 0.05 < 5, "a minute with back-offs of 5, 10, 20 … s has at most four attempts of a second"


@virtual_time
async def test_a_preferred_node_that_is_removed_as_the_handover_begins_is_not_handed_it_nor_blamed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with SimCluster(3, sync_delay_ms=5) as cluster:
        leader = await cluster.leader()
        preferred = follower_of(cluster, leader)
        transfer = leader.replica.handover.transfer
        removals: list[asyncio.Task[Change]] = []

        async def remove_and_transfer(target: NodeId) -> NodeId:
            removals.append(await begin_removal(leader, preferred))
            return await transfer(target)

        monkeypatch.setattr(leader.replica.handover, "transfer", remove_and_transfer)
        await prefer(cluster, **{preferred.id: 10})
        await cluster.until(lambda: bool(removals))
        [removal] = removals
        await removal
        await asyncio.sleep(10)
        assert leader.leads
        assert len(removals) == 1
        assert "the leadership was not handed over" not in caplog.text


@virtual_time
async def test_two_that_are_preferred_alike_leave_the_leadership_where_it_is() -> None:
    async with SimCluster(3) as cluster:
        leader = await prefer(cluster, n0=5, n1=5, n2=5)
        await asyncio.sleep(60)
        assert leader.leads


@virtual_time
async def test_a_stop_does_not_wait_for_a_handover_to_a_preferred_leader() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        preferred = follower_of(cluster, leader)
        cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, TakeLeadership), drop_share=1))
        sent = takes(cluster)
        await prefer(cluster, **{preferred.id: 10})
        await cluster.until(lambda: not leader.replica.core.leadership or bool(leader.replica.core.leadership.transfer))
        await asyncio.wait_for(leader.stop(), 6)
        assert len(sent) <= 2
        await cluster.leader()


# An even spread ------------------------------------------------------------------------------------------------------


@pytest.fixture
def made_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group of a ``SimCluster`` counts as one."""
    for module in ("replica", "leader.preferred"):
        monkeypatch.setattr(f"dledger.group.{module}.is_spread", lambda *_: True)


def order_of(cluster: SimCluster) -> list[SimNode]:
    """Who is to lead, the first choice first."""
    return [cluster.nodes[node_id] for node_id in ranked(DEFAULT_GROUP, list(cluster.nodes))]


@pytest.mark.usefixtures("made_at_run_time")
@virtual_time
async def test_a_group_made_at_run_time_is_led_by_its_first_choice_wherever_it_was_elected() -> None:
    async with SimCluster(5) as cluster:
        first, second, third, *_ = order_of(cluster)
        await cluster.leader()
        await cluster.until(lambda: first.leads, within_s=10)
        term = first.replica.term
        await asyncio.sleep(30)
        assert (first.leads, first.replica.term) == (True, term), "nothing moves any more"
        await first.replica.handover.transfer(third.id)
        await cluster.until(lambda: first.leads, within_s=10)
        first.crash()
        await cluster.until(lambda: second.leads, within_s=10)
        await first.start()
        await cluster.until(lambda: first.leads, within_s=10)


@pytest.mark.usefixtures("made_at_run_time")
@virtual_time
async def test_what_an_operator_prefers_goes_before_an_even_spread() -> None:
    async with SimCluster(3) as cluster:
        first, second, third = order_of(cluster)
        await cluster.until(lambda: first.leads, within_s=10)
        await prefer(cluster, **{third.id: 1})
        await cluster.until(lambda: third.leads, within_s=10)
        third.crash()
        await cluster.leader()
        await asyncio.sleep(10)
        assert first.leads or second.leads
        await third.start()
        await cluster.until(lambda: third.leads, within_s=10)
        await prefer(cluster)
        await cluster.until(lambda: first.leads, within_s=10)


@pytest.mark.usefixtures("made_at_run_time")
@virtual_time
async def test_a_handover_for_an_even_spread_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimCluster(3) as cluster:
        first, second, _ = order_of(cluster)
        await cluster.until(lambda: first.leads, within_s=10)
        await cluster.level()
        asked: list[float] = []
        for node in cluster.nodes.values():
            monkeypatch.setattr(node, "may_spread", lambda: asked.append(asyncio.get_running_loop().time()))
        await first.replica.handover.transfer(second.id)
        await asyncio.sleep(10)
        assert second.leads
        assert len(asked) > 20, "it asks again and again"
        monkeypatch.undo()
        for node in cluster.nodes.values():
            monkeypatch.setattr(node, "may_spread", lambda: True)
        await cluster.until(lambda: first.leads, within_s=2)


@virtual_time
async def test_the_clusters_own_groups_stay_where_they_were_elected() -> None:
    async with SimCluster(3) as cluster:
        *_, last = order_of(cluster)
        leader = await cluster.leader()
        await cluster.level()
        if leader is not last:
            await leader.replica.handover.transfer(last.id)
        await asyncio.sleep(30)
        assert last.leads


@virtual_time
async def test_a_node_begins_few_handovers_a_second_for_an_even_spread(tmp_path: Path) -> None:
    node, begun = Node(NodeConfig("n0", {"n0": "127.0.0.1:1"}, tmp_path)), 0
    for _ in range(1_000):
        begun += node.may_spread()
        await asyncio.sleep(0.01)
    assert 90 <= begun <= 100
