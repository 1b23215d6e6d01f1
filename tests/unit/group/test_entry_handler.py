"""A follower's side of replication, push by push."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest

from dledger.common.errors import Code, error
from dledger.common.types import DEFAULT_GROUP, GENESIS, NodeId, Position, Term
from dledger.raft.messages import AppendResponse, CompareResponse, PushResult, TruncateResponse
from tests.support.cluster import SimCluster
from tests.support.virtual_time import settle, virtual_time
from tests.unit.group.logs import BrokenLog, FullLog
from tests.unit.group.pushes import HandMadeLeader, filled, make_frames, one_follower, point_of

# APPEND: order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(range(4))))
@virtual_time
async def test_pushes_are_written_in_the_order_of_positions_however_they_come(order: tuple[int, ...]) -> None:
    frames = make_frames(8)
    async with one_follower() as leader:
        for at in order:
            leader.say(leader.append(*frames[2 * at : 2 * at + 2]))
        answers = await leader.answers()
        assert leader.follower.records() == [b"%d" % index for index in range(8)]
        assert answers[-1] == leader.acked(8)


@virtual_time
async def test_a_whole_window_may_come_backwards() -> None:
    frames = make_frames(1000)
    async with one_follower() as leader:
        for frame in reversed(frames):
            leader.say(leader.append(frame))
        assert leader.acked(1000) in await leader.answers()


@virtual_time
async def test_a_push_that_comes_early_is_not_acknowledged_and_not_written() -> None:
    frames = make_frames(3)
    async with one_follower() as leader:
        assert await leader.push(frames[2]) == []
        assert leader.follower.log.last == GENESIS


@virtual_time
async def test_a_push_told_twice_is_written_once_and_acknowledged_again() -> None:
    frames = make_frames(3)
    async with one_follower() as leader:
        assert await leader.push(*frames) == [leader.acked(3)]
        assert await leader.push(*frames) == [leader.acked(3)]
        assert len(leader.follower.frames()) == 3


@virtual_time
async def test_a_push_that_overlaps_is_written_from_where_it_is_new() -> None:
    frames = make_frames(5)
    async with one_follower() as leader:
        await leader.push(*frames[:3])
        assert await leader.push(*frames[1:5]) == [leader.acked(5)]
        assert len(leader.follower.frames()) == 5


@virtual_time
async def test_a_push_without_frames_says_how_far_is_committed() -> None:
    frames = make_frames(2)
    async with one_follower() as leader:
        await filled(leader, frames)
        await leader.push(commit=2)
        assert leader.follower.commit_position == 2


@virtual_time
async def test_more_early_pushes_than_a_window_holds_are_dropped_and_compared_again() -> None:
    frames = make_frames(40)
    async with SimCluster(3, start=[0]) as cluster:
        leader = HandMadeLeader(cluster[0])
        limits = cluster[0].replica.config.limits
        object.__setattr__(limits, "push_window_bytes", 500)
        object.__setattr__(limits, "push_message_bytes", 500)
        for frame in frames[1:]:
            leader.say(leader.append(frame))
        assert leader.inconsistent in await leader.answers()


# APPEND: what is refused ---------------------------------------------------------------------------------------------


@virtual_time
async def test_a_frame_that_does_not_link_is_refused_and_compared_again() -> None:
    frames = make_frames(2)
    others = make_frames(3, tag=b"other ")
    async with one_follower() as leader:
        await filled(leader, frames)
        assert await leader.push(others[2]) == [leader.inconsistent]
        assert len(leader.follower.frames()) == 2


@virtual_time
async def test_a_push_into_what_is_not_known_to_be_the_leaders_is_compared_first() -> None:
    shared = make_frames(2)
    async with one_follower() as leader:
        await filled(leader, shared + make_frames(3, after=shared))
        leader.term = Term(2)
        assert await leader.push(*make_frames(2, term=2, after=shared)) == [leader.inconsistent]
        assert len(leader.follower.frames()) == 5


@virtual_time
async def test_a_frame_of_a_later_term_than_its_leaders_is_refused() -> None:
    async with one_follower(term=3) as leader:
        assert await leader.push(*make_frames(1, term=4)) == [leader.inconsistent]
        assert leader.follower.log.last == GENESIS


@virtual_time
async def test_a_record_above_the_limit_is_refused_by_followers_too() -> None:
    async with SimCluster(3, start=[0]) as cluster:
        leader = HandMadeLeader(cluster[0])
        object.__setattr__(cluster[0].replica.config.limits, "max_record_bytes", 0)
        assert await leader.push(*make_frames(1)) == [leader.inconsistent]


@virtual_time
async def test_pushes_of_an_old_leader_are_answered_with_the_newer_term() -> None:
    frames = make_frames(1)
    async with one_follower(term=3) as leader:
        leader.say(leader.heartbeat())
        await leader.answers()
        leader.term = Term(2)
        expired, nowhere = PushResult.EXPIRED_TERM, Position(0)
        newer = Term(3)
        assert await leader.push(*frames) == [AppendResponse(DEFAULT_GROUP, newer, expired, nowhere)]
        assert await leader.compare(GENESIS) == [CompareResponse(DEFAULT_GROUP, newer, expired, nowhere, Term(0), 1)]
        assert await leader.truncate(GENESIS) == [TruncateResponse(DEFAULT_GROUP, newer, expired, 2)]
        assert leader.follower.log.last == GENESIS


@virtual_time
async def test_a_full_disk_is_told_and_nothing_is_kept() -> None:
    frames = make_frames(2)
    async with one_follower() as leader:
        full = FullLog.of(leader.follower.log)
        full.is_full = True
        assert await leader.push(*frames) == [leader.acked(0, PushResult.DISK_FULL)]
        full.is_full = False
        assert await leader.push(*frames) == [leader.acked(2)]


@virtual_time
async def test_a_write_that_cannot_be_undone_stops_the_follower_as_a_failed_disk() -> None:
    async with one_follower() as leader:
        follower = leader.follower
        log = BrokenLog.of(follower.log)
        log.refusal, log.has_written = error(Code.TERM_CHANGED, "half of it may be there"), True
        assert await leader.push(*make_frames(2)) == []
        assert follower.failure is not None
        assert follower.failure.code is Code.DISK_ERROR
        follower.failure = None


@virtual_time
async def test_a_full_disk_is_said_in_the_followers_own_log_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async with one_follower() as leader:
        FullLog.of(leader.follower.log).is_full = True
        for _ in range(5):
            await leader.push(*make_frames(2))
        said = [record.message for record in caplog.records if record.name.endswith("entry_handler")]
        assert said == ["this follower falls behind"]


# Acknowledgements ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_what_is_written_is_acknowledged_only_when_it_is_durable() -> None:
    frames = make_frames(3)
    async with one_follower(sync_delay_ms=5) as leader:
        assert await leader.push(*frames) == []
        await asyncio.sleep(0.006)
        assert await leader.answers() == [leader.acked(3)]


@virtual_time
async def test_neither_a_second_push_nor_a_comparison_is_acknowledged_before_the_first_is_durable() -> None:
    frames = make_frames(3)
    async with one_follower(sync_delay_ms=5) as leader:
        await leader.push(*frames)
        assert await leader.push(*frames) == []
        assert await leader.compare(point_of(frames)) == [leader.compared(PushResult.SUCCESS, 3, 1)]
        await asyncio.sleep(0.006)
        assert await leader.answers() == [leader.acked(3)]


@virtual_time
async def test_what_is_durable_is_acknowledged_only_as_far_as_it_is_known_to_be_the_leaders() -> None:
    """A longer log from before: durable to its end, and known to equal this leader's up to the match only."""
    frames = make_frames(5)
    async with one_follower(term=2) as leader:
        await filled(leader, frames)
        leader.term = Term(3)
        answers = await leader.compare(point_of(frames[:2]))
        assert answers == [leader.compared(PushResult.SUCCESS, 5, 1), leader.acked(2)]
        await leader.truncate(point_of(frames[:2]))
        assert leader.follower.log.last.position == 2


@virtual_time
async def test_a_group_of_pushes_that_share_a_sync_is_acknowledged_once() -> None:
    frames = make_frames(20)
    async with one_follower(sync_delay_ms=5) as leader:
        for frame in frames:
            leader.say(leader.append(frame))
        await asyncio.sleep(0.02)
        answers = await leader.answers()
        assert answers[-1] == leader.acked(20)
        assert len(answers) <= 2


# Stopping, and promises -------------------------------------------------------------------------------------------


@virtual_time
async def test_a_stopped_node_answers_nobody() -> None:
    async with SimCluster(3, start=[0]) as cluster:
        leader = HandMadeLeader(cluster[0])
        await cluster[0].replica.stop()
        assert cluster[0].outbox == []
        assert await leader.push(*make_frames(1)) == []
        await settle()
        assert NodeId("n0") not in cluster.leaders.values()


@virtual_time
async def test_nothing_is_acknowledged_in_a_term_that_is_not_durable_also_behind_another_save() -> None:
    """What arrived during a save is taken in one go, and may bring a higher term again."""
    frames = make_frames(3)
    async with one_follower() as leader:
        await filled(leader, frames, commit=3)
        leader.follower.saver.delay_s = 0.01
        leader.term = Term(2)
        leader.say(leader.heartbeat())
        leader.term = Term(3)
        leader.say(leader.append(*frames))
        await asyncio.sleep(0.015)
        assert [answer.term for answer in await leader.answers()] == [2]
        await asyncio.sleep(0.015)
        assert await leader.answers() == [leader.acked(3)]
