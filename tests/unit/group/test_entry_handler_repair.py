"""A follower's side of COMPARE and TRUNCATE, and its way back to a vote."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.errors import Code
from dledger.common.types import GENESIS, DiskState, LogPoint, Position, Term, TrimPoint
from dledger.log.frame.control import trim_body
from dledger.log.frame.frame import ControlKind, Frame
from dledger.raft.following import LedDown
from dledger.raft.messages import PushResult
from tests.support.cluster import SimCluster
from tests.support.virtual_time import virtual_time
from tests.unit.group.logs import DamagedPointLog, SlowLog, TrimmedMeanwhileLog
from tests.unit.group.pushes import HandMadeLeader, filled, make_control, make_frames, one_follower, point_of

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


async def with_three_committed_before(cluster: SimCluster) -> tuple[HandMadeLeader, list[Frame]]:
    """A follower of five frames, three of them committed, that hears the leader of the next term."""
    frames = make_frames(5)
    leader = HandMadeLeader(cluster[0])
    await filled(leader, frames, commit=3)
    leader.term = Term(2)
    await leader.ask(leader.heartbeat())
    return leader, frames


def stopped_as_diverged(cluster: SimCluster, frames: list[Frame]) -> bool:
    failure, cluster[0].failure = cluster[0].failure, None
    return failure is not None and failure.code is Code.DIVERGED and cluster[0].log.last == point_of(frames)


@virtual_time
async def test_a_leader_that_compares_below_what_was_committed_before_its_term_has_lost_it() -> None:
    async with SimCluster(3, start=[0]) as cluster:
        leader, frames = await with_three_committed_before(cluster)
        [answer] = await leader.compare(point_of(frames[:2]))
        assert answer == leader.compared(PushResult.DIVERGED, 2, 1)
        assert stopped_as_diverged(cluster, frames)


@virtual_time
async def test_what_rests_on_a_damaged_frame_is_not_answered_and_the_disk_is_not_called_full() -> None:
    frames = make_frames(5)
    async with one_follower() as leader:
        await filled(leader, frames)
        DamagedPointLog.of(leader.follower.log)
        assert await leader.compare(point_of(frames)) == []
        assert await leader.truncate(point_of(frames[:2])) == []
        assert leader.follower.replica.disk_watch.state is DiskState.OK


@virtual_time
async def test_the_first_comparison_after_a_leader_was_led_down_over_damage_is_never_answered() -> None:
    frames = make_frames(5)
    async with one_follower() as leader:
        await filled(leader, frames)
        leader.term = Term(2)
        leader.follower.replica.was_led_down(LedDown(leader.term))
        late, first, anew = (leader.comparison(point_of(each)) for each in (frames[:1], frames[:2], frames))
        for unanswered in (first, first, late):
            assert await leader.ask(unanswered) == []
        [answer, _] = await leader.ask(anew)
        assert answer == leader.compared(PushResult.SUCCESS, 5, 1)
        assert await leader.ask(first) == []


@virtual_time
async def test_the_next_leader_begins_its_comparison_itself_and_is_answered() -> None:
    frames = make_frames(5)
    async with one_follower() as leader:
        await filled(leader, frames)
        leader.follower.replica.was_led_down(LedDown(Term(2)))
        leader.term = Term(3)
        [answer, _] = await leader.compare(point_of(frames[:2]))
        assert answer == leader.compared(PushResult.SUCCESS, 5, 1)


# TRUNCATE ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_leader_that_cuts_below_what_was_committed_before_its_term_has_lost_it() -> None:
    async with SimCluster(3, start=[0]) as cluster:
        leader, frames = await with_three_committed_before(cluster)
        [answer] = await leader.truncate(point_of(frames[:2]))
        assert answer == leader.truncated(PushResult.DIVERGED)
        assert stopped_as_diverged(cluster, frames), "not a frame is cut, and the node does not go on"


@virtual_time
async def test_a_truncation_below_what_was_committed_since_is_late() -> None:
    frames = make_frames(5)
    async with one_follower() as leader:
        await filled(leader, frames, commit=5)
        answer = await leader.truncate(point_of(frames[:2]))
        assert answer == [leader.truncated(PushResult.INCONSISTENT_STATE)]
        assert leader.follower.log.last == point_of(frames)


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
        assert not replica.core.may_vote, "they are not durable here"
        await leader.push(commit=10)
        assert replica.core.may_vote


@virtual_time
async def test_what_an_older_term_committed_does_not_say_how_far_this_term_will() -> None:
    frames = make_frames(2)
    async with one_follower(term=2) as leader:
        leader.follower.replica.wait_until_caught_up()
        await leader.push(*frames, commit=2)
        assert not leader.follower.replica.core.may_vote


@virtual_time
async def test_a_late_word_on_what_was_trimmed_since_settles_nothing_and_ends_nobody() -> None:
    frames = make_frames(7)
    fifth = frames[4].header
    trim = make_control(frames, ControlKind.TRIM, trim_body(TrimPoint(fifth.point, fifth.end_index)))
    async with one_follower(term=2, sync_delay_ms=50) as leader:
        follower = leader.follower
        follower.replica.wait_until_caught_up()
        await leader.compare(GENESIS)
        await leader.push(*frames, trim)
        await asyncio.sleep(0.1)
        late = leader.heartbeat(commit=3)
        no_op = make_control([*frames, trim], ControlKind.NO_OP, term=2)
        await leader.push(no_op, commit=no_op.header.position)
        assert follower.log.state.start == fifth.point
        await leader.ask(late)
        assert follower.failure is None
        assert not follower.replica.core.may_vote, "the leader's own frame is not durable here"
        await asyncio.sleep(0.1)
        await leader.ask(leader.heartbeat(commit=no_op.header.position))
        assert follower.replica.core.may_vote


@virtual_time
async def test_a_compare_at_a_point_that_goes_meanwhile_does_not_end_the_node() -> None:
    frames = make_frames(6)
    async with one_follower() as leader:
        await filled(leader, frames, commit=6)
        leader.follower.log.__class__ = TrimmedMeanwhileLog
        await leader.compare(point_of(frames[:2]))
        assert leader.follower.failure is None
        assert leader.follower.replica.log.state.start.position == 4
