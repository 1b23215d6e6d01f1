"""The known defects of DLedger's first form, each shown to be absent."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.errors import Code, OutOfRange
from dledger.common.types import Consistency, NodeId, Position, Term
from dledger.group.hard_state import HardState
from dledger.raft.messages import (
    Append,
    Compare,
    Message,
    Truncate,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode, outcome
from tests.support.virtual_time import settle, virtual_time


def isolate(cluster: SimCluster, node: SimNode) -> None:
    cluster.faults.partition([node.id], [other.id for other in cluster.others(node)])


def keep(cluster: SimCluster, kind: type[Message]) -> list[tuple[NodeId, NodeId, Message]]:
    """Every message of ``kind`` that is sent from now on; all arrive as usual."""
    kept: list[tuple[NodeId, NodeId, Message]] = []

    def note(source: NodeId, target: NodeId, message: Message) -> bool:
        if isinstance(message, kind):
            kept.append((source, target, message))
        return False

    cluster.faults.add(Rule(note))
    return kept


async def divergent(cluster: SimCluster, *, theirs: int, ours: int) -> tuple[SimNode, SimNode]:
    """An old leader with ``theirs`` records nobody else has, and a new one with ``ours``; still apart."""
    old = await cluster.leader()
    await cluster.level()
    isolate(cluster, old)
    for index in range(theirs):
        asyncio.ensure_future(outcome(old.append(b"old %d" % index)))  # noqa: RUF006 – its outcome is known
        await asyncio.sleep(0.001)
    new = await cluster.leader()
    for index in range(ours):
        await new.append(b"new %d" % index)
    return old, new


# H1 ------------------------------------------------------------------------------------------------------------------


def vote_request(term: int) -> VoteRequest:
    return VoteRequest("default", Term(term), is_pre_vote=False, last_term=Term(1), last_position=Position(1))


@virtual_time
async def test_h01_a_vote_is_told_only_when_it_is_durable() -> None:
    async with SimCluster(3, start=[0]) as cluster:
        voter = cluster[0]
        voter.saver.delay_s = 0.05
        voter.outbox = []
        voter.on_message(NodeId("n1"), vote_request(5))
        await asyncio.sleep(0.04)
        assert voter.outbox == [], "a save of 50 ms is under way: the term, with the vote"
        await asyncio.sleep(0.02)
        assert voter.saver.state == HardState(Term(5), NodeId("n1"))
        [(candidate, told)] = voter.outbox
        assert isinstance(told, VoteResponse)
        assert (candidate, told.request_term, told.result) == ("n1", Term(5), VoteResult.ACCEPT)


@pytest.mark.parametrize("crash_after_s", [0.02, 0.07, 0.12])
@virtual_time
async def test_h01_no_crash_makes_a_node_vote_twice_in_a_term(crash_after_s: float) -> None:
    """Before the save, and after it: what was not told may be forgotten, nothing else."""
    async with SimCluster(3, start=[0]) as cluster:
        voter = cluster[0]
        voter.saver.delay_s = 0.05
        voter.outbox = []
        voter.on_message(NodeId("n1"), vote_request(5))
        await asyncio.sleep(crash_after_s)
        voter.crash()
        await voter.start()
        voter.on_message(NodeId("n2"), vote_request(5))
        await asyncio.sleep(0.2)
        accepted = [peer for peer, m in voter.outbox if isinstance(m, VoteResponse) and m.result is VoteResult.ACCEPT]
        assert len(accepted) == 1


# H2 ------------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_h02_a_leader_that_lost_an_unsynced_tail_never_writes_its_term_again() -> None:
    async with SimCluster(1, sync_delay_ms=50) as cluster:
        leader = await cluster.leader()
        unsynced = asyncio.ensure_future(outcome(leader.append(b"lost")))
        await asyncio.sleep(0.01)
        lost = leader.log.last
        leader.crash()
        assert await unsynced in {Code.TERM_CHANGED, Code.SHUTTING_DOWN}
        await leader.start()
        leader = await cluster.leader()
        await leader.append(b"instead")
        again = leader.frames()[lost.position - 1].header.point
        assert again.position == lost.position
        assert again.term > lost.term


# H3 ------------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_h03_a_truncated_log_stands_and_votes_by_its_new_end() -> None:
    async with SimCluster(3) as cluster:
        _, new = await divergent(cluster, theirs=10, ours=2)
        requests = keep(cluster, VoteRequest)
        cluster.network.heal()
        await cluster.level()
        end = new.log.last
        new.crash()
        requests.clear()
        await cluster.leader()
        assert requests
        assert {(m.last_term, m.last_position) for _, _, m in requests if isinstance(m, VoteRequest)} == {
            (end.term, end.position)
        }


# H4 ------------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_h04_a_handover_that_fails_leaves_a_cluster_that_goes_on() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        target = cluster.others(leader)[0]
        await leader.append(b"before")
        # The target takes the term, and nobody hears it ask.
        cluster.faults.add(Rule(lambda s, _t, m: s == target.id and isinstance(m, VoteRequest), drop_share=1))
        refused = await asyncio.gather(leader.replica.handover.transfer(target.id), return_exceptions=True)
        assert refused[0] != target.id
        cluster.faults.clear()
        leader = await cluster.leader(within_s=3)
        await leader.append(b"after")
        await cluster.level()
        assert all(node.committed() == [b"before", b"after"] for node in cluster.up())


# H5 ------------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_h05_a_delayed_truncate_of_the_same_term_cannot_drop_committed_entries() -> None:
    async with SimCluster(3) as cluster:
        old, new = await divergent(cluster, theirs=10, ours=5)
        truncates = keep(cluster, Truncate)
        cluster.network.heal()
        await cluster.level()
        assert truncates
        for index in range(5, 10):
            await new.append(b"new %d" % index)
        await cluster.level()
        for source, _, message in truncates:
            old.on_message(source, message)
        await settle()
        assert old.committed() == [b"new %d" % index for index in range(10)]


@virtual_time
async def test_h05_a_delayed_truncate_cannot_drop_what_was_acknowledged_and_is_not_known_to_be_committed() -> None:
    async with SimCluster(3) as cluster:
        old, new = await divergent(cluster, theirs=10, ours=5)
        truncates = keep(cluster, Truncate)
        cluster.network.heal()
        await cluster.level()
        acknowledged = await new.append(b"acknowledged")
        await cluster.until(lambda: old.records()[-1] == b"acknowledged")
        for source, _, message in truncates:
            old.on_message(source, message)
        await settle()
        assert old.records()[acknowledged.base_index] == b"acknowledged"


@virtual_time
async def test_h05_a_truncate_of_an_old_leader_is_refused() -> None:
    async with SimCluster(3) as cluster:
        _, new = await divergent(cluster, theirs=10, ours=5)
        truncates = keep(cluster, Truncate)
        cluster.network.heal()
        await cluster.level()
        third = next(node for node in cluster.up() if not node.leads)
        await new.replica.handover.transfer(third.id)
        leader = await cluster.leader()
        await leader.append(b"newest")
        await cluster.level()
        for node in cluster.up():
            for source, _, message in truncates:
                node.on_message(source, message)
        await settle()
        assert all(node.committed()[-1] == b"newest" for node in cluster.up())


# H6 ------------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_h06_a_new_leaders_first_append_that_is_lost_is_sent_again_while_idle() -> None:
    async with SimCluster(3) as cluster:
        lost = cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Append), drop_every=1))
        await cluster.until(lambda: lost.dropped >= 2)
        cluster.faults.remove(lost)
        await cluster.level(within_s=2)


# H7, H8 --------------------------------------------------------------------------------------------------------------


async def trimmed_past(cluster: SimCluster) -> tuple[SimNode, SimNode]:
    """A leader, and a follower that is down and ends before the leader's log begins."""
    leader = await cluster.leader()
    away = cluster.others(leader)[0]
    away.crash()
    for index in range(50):
        await leader.append(b"%d" % index)
    await leader.replica.retention.trim(40)
    return leader, away


@virtual_time
async def test_h07_a_follower_behind_retention_catches_up_instead_of_being_asked_for_ever() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader, away = await trimmed_past(cluster)
        compares = keep(cluster, Compare)
        await away.start()
        await cluster.level(within_s=2)
        asked = len(compares)
        assert asked < 6
        await asyncio.sleep(10)
        assert len(compares) == asked
        assert away.committed() == leader.committed()


@virtual_time
async def test_h08_a_cut_behind_a_trim_leaves_what_the_leader_has() -> None:
    """The cut falls on the right frame also where positions and the place in the log differ by what was trimmed."""
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        for index in range(50):
            await leader.append(b"%d" % index)
        await leader.replica.retention.trim(40)
        await cluster.until(lambda: all(node.first_index == 39 for node in cluster.up()))
        old, new = await divergent(cluster, theirs=10, ours=5)
        truncates = keep(cluster, Truncate)
        cluster.network.heal()
        await cluster.level()
        assert truncates
        assert old.first_index == new.first_index == 39
        assert old.committed() == new.committed()
        assert [frame.header.chain for frame in old.frames()] == [frame.header.chain for frame in new.frames()]


# H9, H10, H11 --------------------------------------------------------------------------------------------------------


@virtual_time
async def test_h09_a_push_carries_as_many_frames_as_fit() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        follower = cluster.others(leader)[0]
        follower.crash()
        for index in range(40):
            await leader.append(b"%d" % index)
        pushes = keep(cluster, Append)
        await follower.start()
        await cluster.level()
        assert max(len(m.frames) for _, to, m in pushes if isinstance(m, Append) and to == follower.id) >= 40


@virtual_time
async def test_h10_a_follower_that_lost_its_log_does_not_count_with_what_it_acknowledged_before() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        wiped, other = cluster.others(leader)
        for index in range(10):
            await leader.append(b"%d" % index)
        await cluster.level()
        wiped.crash()
        wiped.wipe()
        await wiped.start()
        await asyncio.sleep(1)
        progress = leader.replica.dispatchers[wiped.id].progress
        assert not progress.counts, "it acknowledged what it has not: it is not what it was"
        assert progress.match <= wiped.log.last.position
        other.crash()
        unacknowledged = asyncio.ensure_future(outcome(leader.append(b"x")))
        await asyncio.sleep(0.3)
        assert leader.commit_index == 9
        await other.start()
        await unacknowledged


@virtual_time
async def test_h11_whatever_is_refused_for_want_of_room_is_refused_loudly() -> None:
    from dledger.common.config import Limits  # noqa: PLC0415

    async with SimCluster(3, limits=Limits(max_pending_batches=5)) as cluster:
        leader = await cluster.leader()
        outcomes = []
        for index in range(20):
            outcomes.append(asyncio.ensure_future(outcome(leader.append(b"%d" % index))))
            await asyncio.sleep(0)
        results = await asyncio.gather(*outcomes)
        taken = [result for result in results if not isinstance(result, Code)]
        assert {result for result in results if isinstance(result, Code)} <= {Code.LEADER_PENDING_FULL}
        assert len(leader.committed()) == len(taken)


# H12 -----------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_h12_after_retention_the_log_begins_in_the_right_term() -> None:
    async with SimCluster(3, segment_frames=5) as cluster:
        for _ in range(4):
            leader = await cluster.leader()
            for index in range(8):
                await leader.append(b"%d" % index)
            await cluster.level()
            await leader.replica.handover.transfer(None)
        leader = await cluster.leader()
        await cluster.level()
        terms = {frame.header.position: frame.header.term for frame in leader.frames()}
        assert len(set(terms.values())) == 5
        await leader.replica.retention.trim(20)
        start = leader.log.state.start
        assert start.position > 0
        assert start.term == terms[start.position]
        for position in range(start.position, leader.log.last.position):
            assert leader.log.term_at(Position(position)) == terms.get(position, leader.replica.term)
        leader.crash()
        await leader.start()
        await cluster.level()
        assert leader.log.state.start == start


# H13, H14 ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_h13_a_truncation_removes_the_whole_tail_also_in_memory() -> None:
    async with SimCluster(3) as cluster:
        old, new = await divergent(cluster, theirs=10, ours=1)
        cluster.network.heal()
        await cluster.level()
        assert old.frames()[-1].header.point == new.log.last
        assert old.log.state.next_index == 1


@virtual_time
async def test_h14_a_get_never_shows_what_is_not_committed() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"committed")
        await cluster.level()
        cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Append), drop_share=1))
        pending = asyncio.ensure_future(outcome(leader.append(b"pending")))
        await asyncio.sleep(0.01)
        assert leader.records() == [b"committed", b"pending"]
        for consistency in Consistency:
            with pytest.raises(OutOfRange):
                await leader.get(1, consistency)
        cluster.faults.clear()
        await pending
        assert (await leader.get(1)).value == b"pending"
