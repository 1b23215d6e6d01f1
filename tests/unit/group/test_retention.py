"""What is trimmed, when, and that nothing else is."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.config import Limits
from dledger.common.errors import ChangePending, Code, DiskFull, DLedgerError, NotLeader, OutOfRange
from dledger.common.types import Consistency, DiskState, GroupSettings, TrimPoint
from dledger.group.leader.retention import Trimmed
from dledger.log.frame.frame import ControlKind
from dledger.log.log_api import SegmentSpan
from dledger.raft.messages import Append
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode, outcome
from tests.support.virtual_time import virtual_time


async def fill(leader: SimNode, count: int) -> None:
    for _ in range(count):
        await leader.append(b"%d" % (leader.commit_index + 1))


def trim_frames(node: SimNode) -> int:
    return sum(frame.header.attributes == ControlKind.TRIM for frame in node.frames())


def stop_pushes(cluster: SimCluster) -> Rule:
    return cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Append), drop_share=1))


# By hand -------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_trim_moves_the_first_index_of_every_node_to_the_same_boundary() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        trimmed = await leader.replica.retention.trim(25)
        assert trimmed.first_index == 19, "position 1 is the no-op, a boundary lies behind every tenth"
        assert trimmed.records == 19
        assert leader.first_index == 19
        await cluster.level()
        await cluster.until(lambda: all(node.first_index == 19 for node in cluster.up()))
        assert (await leader.get(19)).value == b"19"


@virtual_time
async def test_what_is_trimmed_is_out_of_range_and_says_where_the_log_begins() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        await leader.replica.retention.trim(25)
        for consistency in Consistency:
            with pytest.raises(OutOfRange) as refused:
                await leader.get(18, consistency)
            assert refused.value.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN
            assert refused.value.metadata == {"first_index": "19", "commit_index": "49"}


@virtual_time
async def test_a_dry_run_says_what_it_would_take_and_takes_nothing() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        last = leader.log.last
        planned = await leader.replica.retention.trim(25, dry_run=True)
        assert (leader.log.last, leader.first_index) == (last, 0)
        assert await leader.replica.retention.trim(25) == planned


@pytest.mark.parametrize("before_index", [0, 8])
@virtual_time
async def test_where_no_whole_segment_lies_before_the_index_nothing_is_written(before_index: int) -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        last = leader.log.last
        assert await leader.replica.retention.trim(before_index) == Trimmed(0, 0, 0)
        assert leader.log.last == last


@virtual_time
async def test_the_tail_stays_however_high_the_index() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 55)
        await leader.replica.retention.trim(55)
        assert leader.first_index == 49
        assert leader.committed()[-1] == b"54"


@virtual_time
async def test_an_index_that_is_not_committed_is_refused() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        with pytest.raises(OutOfRange, match="the last committed record is 49") as refused:
            await leader.replica.retention.trim(51)
        assert refused.value.metadata == {"first_index": "0", "commit_index": "49"}


@virtual_time
async def test_a_boundary_that_is_not_committed_is_left_alone() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 15)
        rule = stop_pushes(cluster)
        pending = [asyncio.ensure_future(outcome(leader.append(b"%d" % index))) for index in range(15, 40)]
        await asyncio.sleep(0.05)
        _, planned = await leader.replica.retention.set(0, 1, dry_run=True)
        assert planned.first_index == 9
        cluster.faults.remove(rule)
        await asyncio.gather(*pending)


@virtual_time
async def test_a_trim_that_a_full_disk_prevents_says_so() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        spans = [SegmentSpan(0, 20, 1, 1), SegmentSpan(20, 50, 1, 1)]
        leader.log.segments = lambda: spans  # type: ignore[method-assign]
        assert (await leader.replica.retention.trim(30)).records == 0, "a segment in use, or not sealed yet"
        leader.replica.core.disk = DiskState.FULL
        with pytest.raises(DiskFull, match="the small state that the log would begin with had no room"):
            await leader.replica.retention.trim(30)
        assert (await leader.replica.retention.trim(19)).records == 0, "no whole segment lies before it"


@virtual_time
async def test_a_trim_is_done_here_when_it_returns_though_an_earlier_one_was_under_way() -> None:
    async with SimCluster(1, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        done, trim, may_go_on = [], leader.log.trim, asyncio.Event()

        async def slow_trim(to: TrimPoint) -> None:
            await may_go_on.wait()
            await trim(to)
            done.append(to.first_index)

        leader.log.trim = slow_trim  # type: ignore[method-assign]
        first = asyncio.ensure_future(leader.replica.retention.trim(15))
        await asyncio.sleep(0.1)
        second = asyncio.ensure_future(leader.replica.retention.trim(35))
        await asyncio.sleep(0.1)
        may_go_on.set()
        await second
        assert done == [9, 29]
        await first


@virtual_time
async def test_one_trim_at_a_time() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        first = asyncio.create_task(leader.replica.retention.trim(15))
        await asyncio.sleep(0)
        with pytest.raises(ChangePending):
            await leader.replica.retention.trim(25)
        await first
        assert (await leader.replica.retention.trim(25)).first_index == 19


@virtual_time
async def test_a_follower_trims_nothing_by_itself() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        with pytest.raises(NotLeader):
            await cluster.others(leader)[0].replica.retention.trim(0)


@virtual_time
async def test_nothing_is_trimmed_before_the_frame_that_says_so_is_committed() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        rule = stop_pushes(cluster)
        trim = asyncio.create_task(leader.replica.retention.trim(25))
        await asyncio.sleep(0.3)
        assert trim_frames(leader) == 1
        assert leader.first_index == 0
        cluster.faults.remove(rule)
        await trim
        assert leader.first_index == 19


@virtual_time
async def test_a_trim_whose_leader_fell_before_its_commit_is_carried_out_by_all_or_by_none() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        old = await cluster.leader()
        await fill(old, 50)
        await cluster.level()
        cluster.faults.partition([old.id], [other.id for other in cluster.others(old)])
        trim = asyncio.create_task(old.replica.retention.trim(25))
        new = await cluster.leader()
        with pytest.raises(DLedgerError) as unknown:
            await trim
        assert unknown.value.code in {Code.TERM_CHANGED, Code.NOT_LEADER}
        cluster.network.heal()
        await cluster.level()
        assert [node.first_index for node in cluster.up()] == [0, 0, 0]
        assert (await new.replica.retention.trim(25)).first_index == 19


# Restarts ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_node_that_was_down_at_the_trim_carries_it_out_when_it_is_back() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        await cluster.level()
        away = cluster.others(leader)[0]
        away.crash()
        await leader.replica.retention.trim(25)
        await away.start()
        await cluster.level()
        await cluster.until(lambda: away.first_index == 19)


@virtual_time
async def test_after_a_restart_everything_is_where_it_was() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        await leader.replica.retention.trim(25)
        await cluster.level()
        for node in cluster.up():
            node.crash()
        for node in cluster.nodes.values():
            await node.start()
        leader = await cluster.leader()
        assert leader.commit_index == 49
        await fill(leader, 30)
        await cluster.level()
        assert {node.first_index for node in cluster.up()} == {19}
        assert (await leader.replica.retention.trim(60)).first_index > 19


# By policy -----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_segments_whose_newest_record_is_too_old_go_by_themselves() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 25)
        await asyncio.sleep(600)
        await fill(leader, 25)
        await leader.replica.retention.set(300_000, 0)
        await cluster.until(lambda: all(node.first_index == 19 for node in cluster.up()), within_s=3)
        await asyncio.sleep(200)
        assert {node.first_index for node in cluster.up()} == {19}, "the rest is not old enough"
        await asyncio.sleep(200)
        assert {node.first_index for node in cluster.up()} == {49}
        assert leader.committed() == [b"49"], "the last segment stays, however old"


FOUR_DAYS_MS = 4 * 24 * 3_600_000


@pytest.mark.parametrize("who", ["the leader", "a follower"])
@virtual_time
async def test_one_clock_that_is_days_ahead_makes_nothing_old(who: str) -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        await leader.replica.retention.set(300_000, 0)
        wrong = leader if who == "the leader" else cluster.others(leader)[0]
        wrong.clock_offset_ms = FOUR_DAYS_MS
        await asyncio.sleep(60)
        assert leader.first_index == 0
        await asyncio.sleep(300)
        assert leader.first_index == 49, "what is too old by the other clocks goes"


@virtual_time
async def test_what_a_leader_with_a_clock_ahead_wrote_stays_ten_seconds_longer_and_not_shorter() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        leader.clock_offset_ms = 600_000
        await fill(leader, 50)
        await leader.replica.retention.set(300_000, 0)
        leader.clock_offset_ms = 0
        await asyncio.sleep(305)
        assert leader.first_index == 0
        await asyncio.sleep(15)
        assert leader.first_index == 49


@virtual_time
async def test_a_log_that_is_too_large_loses_its_oldest_segments() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        for _ in range(100):
            await leader.append(bytes(1000))
        await leader.replica.retention.set(0, 50_000)
        await cluster.until(lambda: leader.first_index > 0, within_s=3)
        await asyncio.sleep(3)
        assert leader.log.size_bytes <= 50_000
        assert leader.log.size_bytes > 35_000, "no more than needed"
        for _ in range(200):
            await leader.append(bytes(1000))
            await asyncio.sleep(0.05)
        await asyncio.sleep(3)
        assert leader.log.size_bytes <= 50_000
        await cluster.until(lambda: len({node.first_index for node in cluster.up()}) == 1)


@virtual_time
async def test_a_policy_that_has_nothing_to_do_writes_nothing() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        await leader.replica.retention.set(3_600_000, 1_000_000)
        last = leader.log.last
        await asyncio.sleep(60)
        assert leader.log.last == last


@virtual_time
async def test_a_new_leader_goes_on_with_the_policy() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        await leader.replica.retention.set(600_000, 0)
        await cluster.level()
        leader.crash()
        await asyncio.sleep(900)
        assert {node.first_index for node in cluster.up()} == {49}


@virtual_time
async def test_a_policy_is_shown_before_it_is_set() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        await asyncio.sleep(600)
        settings, planned = await leader.replica.retention.set(300_000, 7, dry_run=True)
        assert settings == GroupSettings((), 300_000, 7)
        assert planned.first_index == 49
        await asyncio.sleep(60)
        assert leader.first_index == 0
        assert leader.replica.settings.current == GroupSettings()


# Readers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("follow", [True, False])
@virtual_time
async def test_a_read_that_the_trim_overtakes_ends_out_of_range(follow: bool) -> None:
    async with SimCluster(3, segment_frames=10, limits=Limits(read_message_bytes=1)) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        reader = leader.replica.reader
        seen: list[int] = []

        async def read() -> None:
            async for frames, _ in reader.read(0, None, await reader.read_point(Consistency.COMMITTED), follow=follow):
                seen.extend(frame.header.base_index for frame in frames)
                if len(seen) == 5:
                    await leader.replica.retention.trim(25)

        with pytest.raises(OutOfRange) as ended:
            await read()
        assert seen == list(range(5))
        assert ended.value.metadata["first_index"] == "19"
