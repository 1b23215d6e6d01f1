"""What happens to records on their way to a majority, on whole nodes."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.config import Limits
from dledger.common.errors import Code, NotLeader
from dledger.common.types import Consistency, NodeId
from dledger.group.leader.append_coalescer import MAX_GATHER_S
from dledger.raft.messages import Append, Compare, Message, Truncate
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode, outcome
from tests.support.virtual_time import virtual_time


def is_push(_source: NodeId, _target: NodeId, message: Message) -> bool:
    return isinstance(message, Append | Compare | Truncate)


def isolate(cluster: SimCluster, node: SimNode) -> None:
    cluster.faults.partition([node.id], [other.id for other in cluster.others(node)])


# Append and get ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 5])
@virtual_time
async def test_what_is_appended_is_read_back_at_its_index(size: int) -> None:
    async with SimCluster(size) as cluster:
        leader = await cluster.leader()
        for index in range(20):
            result = await leader.append(b"%d" % index)
            assert (result.base_index, result.count, result.term) == (index, 1, leader.replica.term)
        for index in range(20):
            entry = await leader.get(index)
            assert (entry.index, entry.value) == (index, b"%d" % index)
        await cluster.level()
        assert all(node.committed() == [b"%d" % index for index in range(20)] for node in cluster.up())


@virtual_time
async def test_appends_in_flight_keep_the_order_they_were_made_in() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        pending = []
        for index in range(200):
            pending.append(leader.submit(b"%d" % index))
            if index % 7 == 0:
                await asyncio.sleep(0.0005)
        results = await asyncio.gather(*pending)
        assert [result.base_index for result in results] == list(range(200))
        assert leader.committed() == [b"%d" % index for index in range(200)]


@virtual_time
async def test_a_batch_has_consecutive_indexes_and_may_hold_empty_records() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        first, second = await asyncio.gather(leader.append(b"a", b"", b"c"), leader.append(b""))
        assert (first.base_index, first.count) == (0, 3)
        assert (second.base_index, second.count) == (3, 1)
        assert [(await leader.get(index)).value for index in range(4)] == [b"a", b"", b"c", b""]


@virtual_time
async def test_a_follower_answers_committed_reads_and_names_the_leader_to_others() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"x")
        await cluster.level()
        follower = cluster.others(leader)[0]
        assert (await follower.get(0, Consistency.COMMITTED)).value == b"x"
        with pytest.raises(NotLeader, match=f"ask {leader.id} at {leader.id}:1") as refusal:
            await follower.get(0)
        assert refusal.value.leader_id == leader.id


@virtual_time
async def test_only_the_leader_takes_appends() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        for follower in cluster.others(leader):
            assert await outcome(follower.append(b"x")) is Code.NOT_LEADER


# A quorum, or not ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_nothing_is_committed_until_a_second_peer_joins_and_then_all_of_it_on_both() -> None:
    async with SimCluster(2) as cluster:
        leader = await cluster.leader()
        cluster.others(leader)[0].crash()
        pending = [leader.submit(b"%d" % index) for index in range(10)]
        await asyncio.sleep(0.3)
        assert leader.commit_index == -1
        assert not any(future.done() for future in pending)
        await cluster.others(leader)[0].start()
        results = await asyncio.gather(*pending)
        assert [result.base_index for result in results] == list(range(10))
        await cluster.level()
        assert [node.commit_index for node in cluster.up()] == [9, 9]


@virtual_time
async def test_with_the_network_gone_appends_time_out_with_an_unknown_outcome_and_then_there_is_no_room() -> None:
    """As a leader that cannot know yet that it is cut off: its followers answer heartbeats and take no pushes."""
    async with SimCluster(3, limits=Limits(max_pending_batches=10)) as cluster:
        leader = await cluster.leader()
        cluster.faults.add(Rule(is_push, drop_share=1))
        pending = []
        for index in range(10):
            pending.append(leader.submit(b"%d" % index))
            await asyncio.sleep(2 * MAX_GATHER_S)  # a frame each
        outcomes = await asyncio.gather(*map(outcome, pending))
        assert outcomes == [Code.WAIT_QUORUM_ACK_TIMEOUT] * 10
        assert await outcome(leader.append(b"one more")) is Code.LEADER_PENDING_FULL

        cluster.faults.clear()
        await cluster.level()
        assert leader.commit_index == 9, "what timed out was not lost"
        assert (await leader.append(b"one more")).base_index == 10


@virtual_time
async def test_a_leader_cut_off_says_the_outcome_is_unknown_when_it_steps_down() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        isolate(cluster, leader)
        pending = leader.submit(b"x")
        assert await outcome(pending) is Code.TERM_CHANGED
        assert await outcome(leader.append(b"y")) is Code.NOT_LEADER


@virtual_time
async def test_what_a_minority_held_of_an_unknown_outcome_is_there_or_not_but_never_both() -> None:
    async with SimCluster(3) as cluster:
        old = await cluster.leader()
        await old.append(b"kept")
        isolate(cluster, old)
        lost = old.submit(b"lost")
        new = await cluster.leader()
        await new.append(b"instead")
        assert await outcome(lost) is Code.TERM_CHANGED
        cluster.network.heal()
        await cluster.level()
        assert all(node.committed() == [b"kept", b"instead"] for node in cluster.up())


@virtual_time
async def test_the_leaders_own_copy_counts_only_when_it_is_durable() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        cluster.others(leader)[1].crash()
        leader.log._sync_delay_ms = 300
        pending = leader.submit(b"x")
        await asyncio.sleep(0.29)
        assert leader.replica.dispatchers[cluster.others(leader)[0].id].progress.match == leader.log.last.position
        assert leader.commit_index == -1
        await asyncio.sleep(0.02)
        assert pending.done()


# An unreliable network -----------------------------------------------------------------------------------------------


@virtual_time
async def test_pending_appends_complete_when_a_peer_is_back() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        follower, other = cluster.others(leader)
        other.crash()
        await leader.append(b"0")
        follower.crash()
        pending = [leader.submit(b"%d" % index) for index in range(1, 20)]
        await asyncio.sleep(0.2)
        await follower.start()
        results = await asyncio.gather(*pending)
        assert [result.base_index for result in results] == list(range(1, 20))


@pytest.mark.parametrize("which", range(3))
@virtual_time
async def test_with_every_third_push_lost_all_appends_complete_within_three_seconds(which: int) -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        rule = cluster.faults.add(Rule(is_push, drop_every=3))
        rule.seen = which
        pending = []
        for index in range(30):
            pending.append(leader.submit(b"%d" % index))
            await asyncio.sleep(0.002)
        async with asyncio.timeout(3):
            results = await asyncio.gather(*pending)
        assert [result.base_index for result in results] == list(range(30))


@pytest.mark.parametrize("seed", range(3))
@virtual_time
async def test_an_unstable_network_delays_appends_and_loses_none(seed: int) -> None:
    async with SimCluster(3, seed=seed) as cluster:
        leader = await cluster.leader()
        cluster.faults.add(Rule(drop_share=0.1, duplicate_share=0.1, reorder_share=0.2))
        pending = []
        for index in range(60):
            pending.append(leader.submit(b"%d" % index))
            await asyncio.sleep(0.003)
        outcomes = await asyncio.gather(*map(outcome, pending))
        cluster.faults.clear()
        await cluster.level()
        committed = (await cluster.leader()).committed()
        for index, result in enumerate(outcomes):
            if not isinstance(result, Code):
                assert committed[result.base_index] == b"%d" % index


# Logs that differ ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_longer_divergent_log_is_truncated_under_the_new_leader() -> None:
    """Ten frames that nobody else has give way to five that a majority has."""
    async with SimCluster(3) as cluster:
        old = await cluster.leader()
        isolate(cluster, old)
        divergent = []
        for index in range(10):
            divergent.append(asyncio.ensure_future(outcome(old.append(b"old %d" % index))))
            await asyncio.sleep(2 * MAX_GATHER_S)  # a frame each
        assert old.log.last.position == 11
        new = await cluster.leader()
        for index in range(5):
            await new.append(b"new %d" % index)
        cluster.network.heal()
        await cluster.level()
        assert old.records() == [b"new %d" % index for index in range(5)]
        assert await asyncio.gather(*divergent) == [Code.TERM_CHANGED] * 10


@virtual_time
async def test_an_entry_of_an_old_term_is_not_committed_until_one_of_the_new_leaders_own_is() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        first, second = cluster.others(leader)
        await cluster.level()
        acks = cluster.faults.add(Rule(lambda _from, to, _m: to == leader.id, drop_share=1))
        unacknowledged = asyncio.ensure_future(outcome(leader.append(b"x")))
        await cluster.until(lambda: first.records() == second.records() == [b"x"])
        assert leader.commit_index == -1
        leader.crash()
        await unacknowledged
        cluster.faults.remove(acks)
        pushes = cluster.faults.add(Rule(is_push, drop_share=1))
        await cluster.until(lambda: first.leads or second.leads)
        await asyncio.sleep(0.2)
        assert [first.commit_index, second.commit_index] == [-1, -1], "both hold it, and it is not committed"
        cluster.faults.remove(pushes)
        await cluster.level()
        assert first.committed() == second.committed() == [b"x"]


@pytest.mark.parametrize("frames", [1, 50])
@virtual_time
async def test_a_follower_that_was_away_is_filled_while_nothing_is_appended(frames: int) -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        away = cluster.others(leader)[0]
        await away.stop()
        for index in range(frames):
            await leader.append(b"%d" % index)
        await away.start()
        await cluster.until(lambda: away.commit_index == frames - 1, within_s=1)


@virtual_time
async def test_catching_up_takes_large_pushes_and_not_one_a_frame() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        away = cluster.others(leader)[0]
        await away.stop()
        for index in range(100):
            await leader.append(b"%d" % index)
        pushes = cluster.faults.add(Rule(lambda _f, to, m: to == away.id and isinstance(m, Append)))
        await away.start()
        await cluster.level()
        assert pushes.seen <= 2


@virtual_time
async def test_a_cluster_that_lost_all_its_power_keeps_what_was_acknowledged() -> None:
    async with SimCluster(5, sync_delay_ms=3) as cluster:
        leader = await cluster.leader()
        acknowledged = [b"%d" % index for index in range(20)]
        await asyncio.gather(*map(leader.submit, acknowledged))
        for _ in range(5):
            leader = await cluster.leader()
            unknown = asyncio.ensure_future(outcome(leader.append(b"unknown")))
            await asyncio.sleep(0.002)
            for node in cluster.up():
                node.crash()
            await unknown
            for node in cluster.nodes.values():
                await node.start()
            assert (await cluster.leader()).committed()[:20] == acknowledged
