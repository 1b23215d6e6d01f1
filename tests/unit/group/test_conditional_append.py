"""Conditional appends at the leader: what is appended, what is refused, and when a refusal may be told."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.batch import build_body, crc32c
from dledger.common.errors import Code, DLedgerError, NotLeader, Unavailable, WrongExpectedIndex
from dledger.group.leader.appender import NO_SOURCE, Source
from dledger.group.leader.quorum_ack_checker import AppendResult
from dledger.raft.messages import Append
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode, outcome
from tests.support.virtual_time import settle, virtual_time

Future = asyncio.Future[AppendResult]


def conditional(
    node: SimNode, expect_index: int | None, *records: bytes, source: Source = NO_SOURCE, behind: Future | None = None
) -> Future:
    """A batch of a stream. Raises when it is refused at once."""
    body = build_body(records)
    append = node.replica.appender.append_body
    return append(body, crc32c(body), len(records), source, behind, expect_index=expect_index)


async def next_index_told(appended: Future) -> int:
    with pytest.raises(WrongExpectedIndex) as refused:
        await appended
    return refused.value.next_index


def stop_pushes(cluster: SimCluster) -> Rule:
    return cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Append), drop_share=1))


def cut_off(cluster: SimCluster, node: SimNode) -> None:
    cluster.faults.partition([node.id], [each.id for each in cluster.others(node)])


# What is appended ---------------------------------------------------------------------------------------------------


@virtual_time
async def test_it_is_appended_when_its_first_record_gets_the_index() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        assert (await conditional(leader, 0, b"a", b"b")).base_index == 0
        assert (await conditional(leader, 2, b"c")).base_index == 2


@virtual_time
async def test_it_is_refused_with_the_true_next_index_otherwise() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"a", b"b")
        for wrong in (0, 1, 3, 1 << 40):
            assert await next_index_told(conditional(leader, wrong, b"x")) == 2
        assert leader.records() == [b"a", b"b"]


@virtual_time
async def test_records_of_a_host_program_are_judged_alike() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        append = leader.replica.appender.append_records
        assert (await append([b"a"], expect_index=0)).base_index == 0
        assert await next_index_told(append([b"b"], expect_index=0)) == 1


@pytest.mark.parametrize("impossible", [-1, 1.0, "0", True])
@virtual_time
async def test_what_can_be_no_index_is_refused_at_the_call(impossible: int) -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        with pytest.raises(DLedgerError) as of_records:
            leader.replica.appender.append_records([b"x"], expect_index=impossible)
        with pytest.raises(DLedgerError) as of_a_body:
            conditional(leader, impossible, b"x")
        assert {of_records.value.code, of_a_body.value.code} == {Code.UNEXPECTED_ARGUMENT}


# Frames -------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_it_has_a_frame_of_its_own() -> None:
    """In a shared one the first record would be another caller's."""
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        append = leader.replica.appender.append_records
        shared = [leader.submit(b"under way"), leader.submit(b"a")]
        alone = append([b"b"], expect_index=0)  # written at once, before those that gather
        shared.append(leader.submit(b"c"))
        assert (await alone).base_index == 0
        assert [result.base_index for result in await asyncio.gather(*shared)] == [1, 2, 3]
        alone = append([b"d"], expect_index=4)
        shared = [leader.submit(b"e"), leader.submit(b"f")]
        assert (await alone).base_index == 4
        await asyncio.gather(*shared)
        assert [frame.header.count for frame in leader.frames() if frame.header.count] == [1, 3, 1, 2]


@virtual_time
async def test_it_is_judged_when_it_is_written_not_when_it_comes() -> None:
    """Two come in one turn and expect the same index: one wins. A third expects what is behind that one."""
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        busy = conditional(leader, None, b"under way")  # what comes now shares a turn
        first, second, third = (conditional(leader, index, b"x") for index in (1, 1, 2))
        await busy
        assert (await first).base_index == 1
        assert await next_index_told(second) == 2
        assert (await third).base_index == 2


@virtual_time
async def test_what_is_written_in_the_same_turn_before_it_counts() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        busy = conditional(leader, None, b"under way")
        before, right = conditional(leader, None, b"a", b"b"), conditional(leader, 3, b"c")
        await asyncio.gather(busy, before)
        assert (await right).base_index == 3


# Retries ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_retry_of_one_that_is_in_the_log_gets_its_first_answer() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        source = Source((await leader.replica.appender.new_producer()).base_index, 0, 0)
        first = await conditional(leader, 0, b"a", source=source)
        await leader.append(b"later")
        assert await conditional(leader, 0, b"a", source=source) == first


@virtual_time
async def test_a_retry_of_one_that_is_not_committed_waits_for_its_commit() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        source = Source((await leader.replica.appender.new_producer()).base_index, 0, 0)
        rule = stop_pushes(cluster)
        first, again = conditional(leader, 0, b"a", source=source), conditional(leader, 0, b"a", source=source)
        await settle()
        assert not again.done()
        cluster.faults.remove(rule)
        assert await again == await first


@virtual_time
async def test_a_retry_at_the_next_leader_gets_its_first_answer() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        source = Source((await leader.replica.appender.new_producer()).base_index, 0, 0)
        first = await conditional(leader, 0, b"a", source=source)
        await cluster.level()
        cut_off(cluster, leader)
        await cluster.until(lambda: any(node.leads for node in cluster.others(leader)))
        [new] = [node for node in cluster.others(leader) if node.leads]
        assert await conditional(new, 0, b"a", source=source) == first


@virtual_time
async def test_a_refused_one_takes_no_sequence() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        source = Source((await leader.replica.appender.new_producer()).base_index, 0, 0)
        assert await next_index_told(conditional(leader, 5, b"refused", source=source)) == 0
        assert (await conditional(leader, 0, b"taken", source=source)).base_index == 0


@virtual_time
async def test_a_sequence_that_does_not_fit_is_told_before_the_index() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        producer = (await leader.replica.appender.new_producer()).base_index
        gap = conditional(leader, 7, b"x", source=Source(producer, 0, 3))
        assert await outcome(gap) is Code.OUT_OF_ORDER


# Streams ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_nothing_behind_a_refused_one_is_appended_though_its_refusal_is_not_told_yet() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"a")
        rule = stop_pushes(cluster)
        pending = conditional(leader, None, b"pending")
        refused = conditional(leader, 0, b"refused")
        behind = conditional(leader, None, b"behind it", behind=refused)
        last = conditional(leader, 2, b"and behind that", behind=behind)
        await settle()
        cluster.faults.remove(rule)
        await pending
        assert [await next_index_told(each) for each in (refused, behind, last)] == [2, 2, 2]
        assert leader.records() == [b"a", b"pending"]


# When a refusal is told ---------------------------------------------------------------------------------------------


@virtual_time
async def test_a_refusal_waits_for_the_commit_of_what_it_was_judged_by() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        rule = stop_pushes(cluster)
        pending, refused = conditional(leader, None, b"pending"), conditional(leader, 0, b"x")
        await settle()
        assert not refused.done()
        cluster.faults.remove(rule)
        await pending
        assert await next_index_told(refused) == 1


@virtual_time
async def test_what_follows_the_judgement_changes_nothing_of_the_refusal() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        rule = stop_pushes(cluster)
        refused = conditional(leader, 1, b"x")
        later = leader.submit(b"later")
        cluster.faults.remove(rule)
        assert await next_index_told(refused) == 0
        await later


@virtual_time
async def test_a_refusal_waits_for_a_round_begun_after_the_judgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledgements that make a commit may be older than another leader's term."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"a")
        confirm, gate = leader.replica.confirm_leadership, asyncio.Event()

        async def gated() -> None:
            await gate.wait()
            await confirm()

        monkeypatch.setattr(leader.replica, "confirm_leadership", gated)
        refused = conditional(leader, 0, b"x")
        await settle()
        assert not refused.done()
        gate.set()
        assert await next_index_told(refused) == 1


@virtual_time
async def test_a_deposed_leader_does_not_refuse_by_its_stale_end() -> None:
    async with SimCluster(3) as cluster:
        old = await cluster.leader()
        await old.append(b"a")
        await cluster.level()
        cut_off(cluster, old)
        refused = conditional(old, 2, b"c")  # others append meanwhile: 2 may be right
        with pytest.raises(NotLeader):
            await refused


@virtual_time
async def test_a_leader_whose_frames_are_lost_does_not_refuse_by_them() -> None:
    """The next leader may cut the frame at the index that was expected."""
    async with SimCluster(3) as cluster:
        old = await cluster.leader()
        await old.append(b"a")
        await cluster.level()
        cut_off(cluster, old)
        lost = conditional(old, None, b"lost")
        refused = conditional(old, 1, b"b")
        assert await outcome(lost) is Code.TERM_CHANGED
        with pytest.raises(NotLeader):
            await refused
        await cluster.until(lambda: any(node.leads for node in cluster.others(old)))
        [new] = [node for node in cluster.others(old) if node.leads]
        assert (await conditional(new, 1, b"b")).base_index == 1


@virtual_time
async def test_without_a_quorum_it_is_surely_not_appended() -> None:
    """Not of unknown outcome: the leader did not write it."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        rule = stop_pushes(cluster)
        pending, refused = conditional(leader, None, b"pending"), conditional(leader, 0, b"x")
        assert await outcome(pending) is Code.WAIT_QUORUM_ACK_TIMEOUT
        with pytest.raises(Unavailable):
            await refused
        cluster.faults.remove(rule)


@virtual_time
async def test_a_refusal_is_not_told_once_the_term_it_was_judged_in_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of a later term says nothing of the time when it was judged."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"a")
        gate = asyncio.Event()
        monkeypatch.setattr(leader.replica, "confirm_leadership", gate.wait)
        refused = conditional(leader, 0, b"x")
        await settle()
        cut_off(cluster, leader)
        await cluster.until(lambda: not leader.leads)
        gate.set()
        assert await outcome(refused) is Code.NOT_LEADER


@virtual_time
async def test_who_gives_up_is_no_trouble() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        refused = conditional(leader, 9, b"x")
        behind = conditional(leader, None, b"y", behind=refused)
        await settle()
        refused.cancel()
        behind.cancel()
        await settle()
        assert (await conditional(leader, 0, b"next")).base_index == 0
