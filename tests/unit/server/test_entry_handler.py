"""A follower's side of replication, push by push."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations

import pytest

from dledger.errors import Code
from dledger.raft.messages import AppendResponse, CompareResponse, PushResult, TruncateResponse
from dledger.storage.frame import Frame
from dledger.types import DEFAULT_GROUP, GENESIS, LogPoint, NodeId, Position, Term
from tests.support.cluster import SimCluster
from tests.support.virtual_time import settle, virtual_time
from tests.unit.server.logs import FullLog, SlowLog
from tests.unit.server.pushes import HandMadeLeader, make_frames, point_of


@asynccontextmanager
async def one_follower(term: int = 1, *, sync_delay_ms: float = 0) -> AsyncIterator[HandMadeLeader]:
    async with SimCluster(3, start=[0], sync_delay_ms=sync_delay_ms) as cluster:
        yield HandMadeLeader(cluster[0], term)


async def filled(leader: HandMadeLeader, frames: list[Frame], commit: int = 0) -> None:
    await leader.push(*frames, commit=commit)
    assert leader.follower.log.last == point_of(frames)


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


# COMPARE -------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_point_the_log_has_is_equal_up_to_there() -> None:
    frames = make_frames(5)
    async with one_follower() as leader:
        await filled(leader, frames)
        [answer, _] = await leader.compare(point_of(frames))
        assert answer == leader.compared(PushResult.SUCCESS, 5, 1)


@virtual_time
async def test_a_point_behind_the_end_is_answered_with_the_end() -> None:
    frames = make_frames(5)
    async with one_follower() as leader:
        await filled(leader, frames[:3])
        assert await leader.compare(point_of(frames)) == [leader.compared(PushResult.INCONSISTENT_STATE, 3, 1)]


@virtual_time
async def test_a_point_of_a_lower_term_skips_the_whole_higher_term() -> None:
    shared = make_frames(2, term=1)
    theirs = make_frames(6, term=3, after=shared)
    ours = make_frames(4, term=2, after=shared)
    async with one_follower(term=3) as leader:
        await filled(leader, shared + theirs)
        leader.term = Term(4)
        answer = await leader.compare(point_of(ours))
        assert answer == [leader.compared(PushResult.INCONSISTENT_STATE, 2, 1)]


@virtual_time
async def test_other_bytes_at_the_same_position_and_term_stop_the_node() -> None:
    frames, others = make_frames(3), make_frames(3, tag=b"other ")
    async with SimCluster(3, start=[0]) as cluster:
        leader = HandMadeLeader(cluster[0])
        await filled(leader, frames)
        [answer] = await leader.compare(point_of(others))
        assert answer == leader.compared(PushResult.DIVERGED, 3, 1)
        assert cluster[0].failure is not None
        assert cluster[0].failure.code is Code.DIVERGED
        assert cluster[0].records() == [b"0", b"1", b"2"], "nothing is cut"
        cluster[0].failure = None


@virtual_time
async def test_other_bytes_below_the_commit_position_stop_the_node_whatever_the_term() -> None:
    frames = make_frames(3)
    others = make_frames(3, term=2)
    async with SimCluster(3, start=[0]) as cluster:
        leader = HandMadeLeader(cluster[0], term=2)
        await filled(leader, frames, commit=3)
        assert cluster[0].commit_position == 3
        await leader.compare(point_of(others))
        assert cluster[0].failure is not None
        assert cluster[0].failure.code is Code.DIVERGED
        cluster[0].failure = None


# TRUNCATE ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_tail_that_the_leader_has_not_is_cut_behind_the_match() -> None:
    shared = make_frames(2)
    async with one_follower() as leader:
        await filled(leader, shared + make_frames(3, after=shared))
        leader.term = Term(2)
        await leader.compare(point_of(shared))
        assert await leader.truncate(point_of(shared)) == [leader.truncated()]
        assert leader.follower.log.last == point_of(shared)


@virtual_time
async def test_what_the_leader_is_known_to_have_is_never_cut() -> None:
    frames = make_frames(5)
    async with one_follower() as leader:
        await filled(leader, frames)
        answer = await leader.truncate(point_of(frames[:2]))
        assert answer == [leader.truncated(PushResult.INCONSISTENT_STATE)]
        assert leader.follower.log.last == point_of(frames)


@virtual_time
async def test_a_truncation_that_waited_while_another_leader_came_cuts_nothing() -> None:
    frames = make_frames(5)
    async with one_follower() as leader:
        await filled(leader, frames)
        leader.follower.saver.delay_s = 0.01
        leader.term = Term(2)
        leader.say(leader.truncation(point_of(frames[:2])))
        await asyncio.sleep(0.005)
        leader.term = Term(3)
        leader.say(leader.heartbeat())
        await asyncio.sleep(0.05)
        assert leader.follower.log.last == point_of(frames)


@pytest.mark.parametrize("point", [LogPoint(Position(2), Term(1), 12345), LogPoint(Position(9), Term(1), 1)])
@virtual_time
async def test_a_truncation_behind_a_point_the_log_has_not_is_refused(point: LogPoint) -> None:
    frames = make_frames(5)
    async with one_follower() as leader:
        await filled(leader, frames)
        leader.term = Term(2)
        assert await leader.truncate(point) == [leader.truncated(PushResult.INCONSISTENT_STATE)]
        assert leader.follower.log.last == point_of(frames)


@virtual_time
async def test_pushes_that_come_while_a_comparison_reads_wait_for_it_in_order() -> None:
    shared = make_frames(2)
    ours = make_frames(3, term=2, after=shared)
    async with one_follower() as leader:
        await filled(leader, shared + make_frames(3, after=shared))
        leader.term = Term(2)
        leader.say(leader.comparison(point_of(shared)))
        leader.say(leader.truncation(point_of(shared)))
        leader.say(leader.append(*ours, commit=5))
        answers = await leader.answers()
        assert answers[-1] == leader.acked(5)
        assert leader.follower.log.last == point_of(ours)
        assert leader.follower.commit_position == 5, "also the commit was done, not only decided"
        assert leader.follower.commit_index == 4


@virtual_time
async def test_no_vote_is_given_and_nobody_stands_while_the_log_is_cut() -> None:
    shared = make_frames(2)
    async with one_follower() as leader:
        follower = leader.follower
        await filled(leader, shared + make_frames(3, after=shared))
        slow = SlowLog.of(follower.log)
        leader.term = Term(2)
        await leader.compare(point_of(shared))
        leader.say(leader.truncation(point_of(shared)))
        await asyncio.sleep(5)
        assert follower.outbox == [], "no candidacy, no answer"
        slow.may_go_on.set()
        assert leader.truncated() in await leader.answers()


# Catching up after an unclean stop -----------------------------------------------------------------------------------


@virtual_time
async def test_who_may_have_lost_acknowledged_frames_votes_when_it_holds_all_that_is_committed() -> None:
    frames = make_frames(10)
    async with one_follower() as leader:
        replica = leader.follower.replica
        replica.wait_until_caught_up()
        await leader.push(*frames[:8], commit=10)
        assert leader.follower.commit_position == 8
        assert not replica.core.may_vote, "9 and 10 may have been committed with this node's lost acknowledgement"
        await leader.push(*frames[8:], commit=10)
        assert replica.core.may_vote


@virtual_time
async def test_what_an_older_term_committed_does_not_say_how_far_this_term_will() -> None:
    frames = make_frames(2)
    async with one_follower(term=2) as leader:
        leader.follower.replica.wait_until_caught_up()
        await leader.push(*frames, commit=2)
        assert not leader.follower.replica.core.may_vote


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
