"""Reads: linearizable by a round of a quorum, committed by the node's own knowledge, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from dledger.batch import records_of
from dledger.errors import Code, DLedgerError, NotLeader, OutOfRange
from dledger.raft.messages import Append, Heartbeat, HeartbeatResponse
from dledger.transport.faults import Rule
from dledger.types import Consistency
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import settle, virtual_time

LINEARIZABLE, COMMITTED = Consistency.LINEARIZABLE, Consistency.COMMITTED


def point_of(node: SimNode) -> asyncio.Task[object]:
    return asyncio.create_task(node.replica.reader.read_point(LINEARIZABLE))


async def read(node: SimNode, start: int, end: int | None) -> list[bytes]:
    reader = node.replica.reader
    point = await reader.read_point(COMMITTED)
    return [
        record
        async for frames, _ in reader.read(start, end, point, follow=False)
        for frame in frames
        for record in records_of(frame.body, frame.header.count)
    ]


# Read index ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_linearizable_read_waits_until_the_term_has_committed_its_first_frame() -> None:
    async with SimCluster(3) as cluster:
        stop = cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Append), drop_share=1))
        await cluster.until(lambda: any(node.leads for node in cluster.up()))
        leader = next(node for node in cluster.up() if node.leads)
        reading = point_of(leader)
        await asyncio.sleep(0.3)
        assert not reading.done()
        cluster.faults.remove(stop)
        await reading


@virtual_time
async def test_a_linearizable_read_waits_for_a_quorum_to_say_that_the_leader_still_leads() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        stop = cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, HeartbeatResponse), drop_share=1))
        reading = point_of(leader)
        await asyncio.sleep(0.2)
        assert not reading.done()
        cluster.faults.remove(stop)
        await reading


@virtual_time
async def test_reads_that_come_while_a_round_is_under_way_share_the_next() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await asyncio.sleep(0.01)
        follower = cluster.others(leader)[0]
        rounds = cluster.faults.add(Rule(lambda _s, to, m: isinstance(m, Heartbeat) and to == follower.id))
        readings = [point_of(leader)]
        await asyncio.sleep(0)
        readings += [point_of(leader) for _ in range(50)]
        await asyncio.gather(*readings)
        assert rounds.seen == 2


@virtual_time
async def test_a_read_begun_in_a_round_is_not_answered_by_that_round() -> None:
    """What the quorum said before the read began proves nothing about it."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        first = point_of(leader)
        await asyncio.sleep(0.0005)
        second = point_of(leader)
        await first
        assert not second.done()
        await second


@virtual_time
async def test_a_leader_cut_off_refuses_its_reads_when_it_steps_down() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        cluster.faults.partition([leader.id], [node.id for node in cluster.others(leader)])
        with pytest.raises(NotLeader):
            await point_of(leader)


@virtual_time
async def test_a_deposed_leader_that_does_not_know_it_yet_serves_no_stale_read() -> None:
    async with SimCluster(3) as cluster:
        old = await cluster.leader()
        await old.append(b"before")
        cluster.faults.partition([old.id], [node.id for node in cluster.others(old)])
        reading = point_of(old)
        await cluster.until(lambda: any(node.leads for node in cluster.others(old)))
        with pytest.raises(NotLeader):
            await reading


@virtual_time
async def test_a_reader_that_goes_away_holds_up_nobody() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        gone, stays = point_of(leader), point_of(leader)
        await asyncio.sleep(0)
        gone.cancel()
        await stays


# Records -------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_ranges_are_checked_and_say_where_the_log_begins_and_ends() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        with pytest.raises(OutOfRange, match="there is none yet"):
            await leader.get(0)
        await leader.append(b"a", b"b")
        with pytest.raises(OutOfRange, match="the last is 1") as refusal:
            await leader.get(2)
        assert refusal.value.metadata == {"first_index": "0", "commit_index": "1"}
        with pytest.raises(DLedgerError, match="negative") as refusal_:
            await leader.get(-1)
        assert refusal_.value.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN


RANGES = [(0, None), (3, None), (9, 10), (10, None), (2, 7), (0, 100), (5, 5), (10, 10)]


@pytest.mark.parametrize(("start", "end"), RANGES)
@virtual_time
async def test_a_read_shows_the_frames_that_hold_its_range(start: int, end: int | None) -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        for index in range(10):
            await leader.append(b"%d" % index)
        last = 10 if end is None else min(end, 10)
        assert await read(leader, start, end) == [b"%d" % index for index in range(start, last)]


@virtual_time
async def test_a_read_ends_at_what_was_committed_when_it_began() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        await leader.append(b"a")
        reader = leader.replica.reader
        point = await reader.read_point(LINEARIZABLE)
        await leader.append(b"b")
        frames = [frame async for found, _ in reader.read(0, None, point, follow=False) for frame in found]
        assert [frame.header.base_index for frame in frames] == [0]


@pytest.mark.parametrize("start", [0, 1, 3])
@virtual_time
async def test_a_read_that_follows_goes_on_with_what_is_committed_later(start: int) -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"0")
        reader = leader.replica.reader
        point = await reader.read_point(COMMITTED)
        seen: list[int] = []

        async def follow() -> None:
            async for frames, _ in reader.read(start, 5, point, follow=True):
                seen.extend(frame.header.base_index for frame in frames)

        following = asyncio.create_task(follow())
        for index in range(1, 5):
            await settle()
            assert not following.done()
            await leader.append(b"%d" % index)
        await following
        assert seen == list(range(start, 5))


@virtual_time
async def test_an_empty_range_is_empty_also_when_it_follows() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        await leader.append(b"a", b"b", b"c")
        reader = leader.replica.reader
        point = await reader.read_point(COMMITTED)
        async for _ in reader.read(1, 1, point, follow=True):
            raise AssertionError("nothing was asked for")


@virtual_time
async def test_a_read_that_follows_ends_when_the_node_stops() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        reader = leader.replica.reader
        point = await reader.read_point(COMMITTED)

        async def follow() -> None:
            async for _ in reader.read(0, None, point, follow=True):
                raise AssertionError("nothing was appended")

        following = asyncio.create_task(follow())
        await settle()
        await leader.stop()
        with pytest.raises(DLedgerError) as refusal:
            async with asyncio.timeout(1):
                await following
        assert refusal.value.code is Code.SHUTTING_DOWN
