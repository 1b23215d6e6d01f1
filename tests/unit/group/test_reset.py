"""A follower that ends before the leader's log begins: reset, and equal again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dledger.common.errors import Code, OutOfRange, error
from dledger.common.types import DEFAULT_GROUP, Consistency, Position, Role, Term, TrimPoint
from dledger.group.leader.append_coalescer import MAX_GATHER_S
from dledger.group.leader.appender import Source
from dledger.log.frame.frame import Frame
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.log_api import DamagedRange
from dledger.raft.messages import Append, Compare, CompareResponse, PushResult, Reset, ResetResponse
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode, address_of, outcome
from tests.support.virtual_time import settle, virtual_time
from tests.unit.group.pushes import HandMadeLeader, filled, make_frames, one_follower, point_of


async def fill(leader: SimNode, count: int) -> None:
    for _ in range(count):
        await leader.append(b"%d" % (leader.commit_index + 1))


async def left_behind(cluster: SimCluster, *, wipe: bool = False) -> tuple[SimNode, SimNode]:
    """The leader, and a follower that is down and ends before the leader's log begins."""
    leader = await cluster.leader()
    await fill(leader, 15)
    await cluster.level()
    away = cluster.others(leader)[0]
    away.crash()
    if wipe:
        away.wipe()
    await fill(leader, 50)
    await leader.replica.retention.trim(60)
    assert leader.log.state.start.position > away.log.last.position
    return leader, away


# Whole nodes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wipe", [False, True])
@virtual_time
async def test_a_follower_that_was_away_past_the_trim_point_is_reset_and_equal_again(wipe: bool) -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader, away = await left_behind(cluster, wipe=wipe)
        await away.start()
        await cluster.level()
        assert away.log.state.encode() == leader.log.state.encode()
        assert away.replica.metrics.resets == 1
        await fill(leader, 5)
        await cluster.level()
        assert away.committed() == leader.committed()


@virtual_time
async def test_what_was_reset_survives_a_crash_right_after() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader, away = await left_behind(cluster)
        await away.start()
        await cluster.until(lambda: away.replica.metrics.resets == 1)
        away.crash()
        await away.start()
        await cluster.level()
        assert away.log.state.encode() == leader.log.state.encode()
        assert away.replica.metrics.resets == 0


@virtual_time
async def test_a_node_that_was_reset_counts_and_may_lead() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader, away = await left_behind(cluster)
        await away.start()
        await cluster.level()
        other = next(node for node in cluster.others(leader) if node is not away)
        other.crash()
        await fill(leader, 5)
        await leader.replica.handover.transfer(away.id)
        assert (await cluster.leader()) is away
        assert (await away.append(b"x")).base_index == leader.commit_index + 1


@virtual_time
async def test_a_producer_that_the_reset_brought_along_is_known_to_the_new_leader() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        away = cluster.others(leader)[0]
        away.crash()
        producer = (await leader.replica.appender.new_producer()).base_index
        first = await leader.replica.appender.append_records([b"once"], Source(producer, 0, 0))
        await fill(leader, 50)
        await leader.replica.retention.trim(40)
        await away.start()
        await cluster.level()
        await leader.replica.handover.transfer(away.id)
        leader = await cluster.leader()
        assert leader is away
        assert await leader.replica.appender.append_records([b"once"], Source(producer, 0, 0)) == first


@virtual_time
async def test_a_learner_that_joins_a_trimmed_log_begins_where_it_begins() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 50)
        await leader.replica.retention.trim(30)
        joined = await cluster.join(3)
        await leader.replica.members.add(joined.id, address_of(joined.id))
        await cluster.until(lambda: joined.log.last == leader.log.last)
        assert joined.replica.role is Role.LEARNER
        assert joined.first_index == leader.first_index


@virtual_time
async def test_a_lost_reset_or_its_lost_answer_is_made_good() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        _, away = await left_behind(cluster)
        lost = [
            cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Reset), drop_every=1)),
            cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, ResetResponse), drop_every=1)),
        ]
        await away.start()
        for rule in lost:
            await cluster.until(lambda rule=rule: rule.dropped > 0)  # type: ignore[misc]
            cluster.faults.remove(rule)
        await cluster.level()


@virtual_time
async def test_resets_that_come_late_or_twice_change_nothing() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader, away = await left_behind(cluster)
        resets: list[Reset] = []

        def keep(_source: object, _target: object, message: object) -> bool:
            if isinstance(message, Reset):
                resets.append(message)
            return False

        cluster.faults.add(Rule(keep))
        await away.start()
        await cluster.level()
        await fill(leader, 5)
        await cluster.level()
        before = away.log.state.encode()
        for message in (*resets, replace(resets[0], term=Term(leader.replica.term - 1))):
            away.on_message(leader.id, message)
            await settle()
        assert away.log.state.encode() == before


@virtual_time
async def test_a_follower_whose_uncommitted_tail_reaches_past_the_leaders_start_gives_it_up() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        old = await cluster.leader()
        await fill(old, 5)
        await cluster.level()
        cluster.faults.partition([old.id], [other.id for other in cluster.others(old)])
        pending = [asyncio.ensure_future(outcome(old.append(b"lost"))) for _ in range(1)]
        for index in range(50):
            pending.append(asyncio.ensure_future(outcome(old.append(b"old %d" % index))))
            await asyncio.sleep(MAX_GATHER_S)  # about a frame each
        new = await cluster.leader()
        await fill(new, 50)
        await new.replica.retention.trim(45)
        assert old.log.last.position > new.log.state.start.position > old.commit_position
        cluster.network.heal()
        await cluster.level()
        assert old.committed() == new.committed()
        assert set(await asyncio.gather(*pending)) <= {Code.TERM_CHANGED, Code.NOT_LEADER}


@virtual_time
async def test_a_trim_between_two_steps_of_a_comparison_leads_to_a_reset() -> None:
    """The follower is asked, the leader's log is trimmed past its answer, and nothing breaks."""
    async with SimCluster(3, segment_frames=10) as cluster:
        leader = await cluster.leader()
        await fill(leader, 15)
        await cluster.level()
        away = cluster.others(leader)[0]
        away.crash()
        await fill(leader, 50)
        cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, CompareResponse | Compare | Append), delay_s=0.02))
        await away.start()
        await cluster.until(lambda: away.replica.core.leader_id == leader.id)
        await leader.replica.retention.trim(60)
        await cluster.level()
        assert away.committed() == leader.committed()


# Reads on the node that is reset -------------------------------------------------------------------------------------


@pytest.mark.parametrize("follow", [True, False])
@virtual_time
async def test_a_read_under_way_on_a_node_that_is_reset_ends_out_of_range(follow: bool) -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader, away = await left_behind(cluster)
        await away.start()
        reader = away.replica.reader
        point = await reader.read_point(Consistency.COMMITTED)
        assert point.commit_index < 60
        reading = reader.read(10, None, point, follow=follow)
        frames, _ = await anext(reading)
        assert frames[0].header.base_index == 10
        await cluster.level()
        assert away.replica.metrics.resets == 1
        if follow:
            with pytest.raises(OutOfRange) as ended:
                await anext(reading)
            assert ended.value.metadata["first_index"] == str(leader.first_index)
        with pytest.raises(OutOfRange):
            await reader.get(10, point)


@virtual_time
async def test_a_reader_that_waits_for_an_index_the_reset_passed_over_is_told() -> None:
    async with SimCluster(3, segment_frames=10) as cluster:
        leader, away = await left_behind(cluster)
        await away.start()
        reader = away.replica.reader
        waiting = asyncio.ensure_future(
            anext(reader.read(20, None, await reader.read_point(Consistency.COMMITTED), follow=True))
        )
        await settle()
        assert not waiting.done()
        with pytest.raises(OutOfRange) as ended:
            await waiting
        assert ended.value.metadata["first_index"] == str(leader.first_index)


# The follower's side, by hand ----------------------------------------------------------------------------------------


def state_behind(frames: list[Frame]) -> LogSnapshot:
    state = LogSnapshot(DEFAULT_GROUP)
    for frame in frames:
        state.apply(frame)
    state.begin_at(TrimPoint(state.last, state.next_index))
    return state


def reset_to(frames: list[Frame], term: int = 1) -> Reset:
    return Reset(DEFAULT_GROUP, Term(term), state_behind(frames).encode(), 7)


def answered(leader: HandMadeLeader, result: PushResult, term: int = 0) -> ResetResponse:
    return ResetResponse(DEFAULT_GROUP, Term(term or leader.term), result, 7)


@virtual_time
async def test_an_empty_follower_begins_where_it_is_told() -> None:
    async with one_follower() as leader:
        frames = make_frames(20)
        assert await leader.ask(reset_to(frames)) == [answered(leader, PushResult.SUCCESS)]
        log = leader.follower.log
        assert (log.last, log.state.start, log.state.first_index) == (point_of(frames), point_of(frames), 20)
        assert (leader.follower.commit_index, leader.follower.commit_position) == (19, 20)
        more = make_frames(3, after=frames)
        assert leader.acked(23) in await leader.push(*more)


@virtual_time
async def test_a_follower_that_has_the_point_keeps_its_log() -> None:
    async with one_follower() as leader:
        frames = make_frames(20)
        await filled(leader, frames)
        assert await leader.ask(reset_to(frames[:10])) == [answered(leader, PushResult.INCONSISTENT_STATE)]
        assert leader.follower.log.last == point_of(frames)
        assert leader.follower.log.state.start.position == 0


@virtual_time
async def test_a_reset_of_an_old_term_is_refused() -> None:
    async with one_follower(term=2) as leader:
        await leader.push()
        assert await leader.ask(reset_to(make_frames(20), term=1)) == [answered(leader, PushResult.EXPIRED_TERM)]
        assert leader.follower.log.last.position == 0


@virtual_time
async def test_a_reset_that_contradicts_what_is_committed_stops_the_node_and_keeps_its_log() -> None:
    async with SimCluster(3, start=[0]) as cluster:
        leader = HandMadeLeader(cluster[0])
        frames = make_frames(20)
        await filled(leader, frames, commit=20)
        other = make_frames(20, tag=b"other")
        assert answered(leader, PushResult.DIVERGED) in await leader.ask(reset_to(other[:10]))
        failure = cluster[0].failure
        assert failure is not None
        assert failure.code is Code.DIVERGED
        assert cluster[0].log.last == point_of(frames)
        cluster[0].failure = None


@virtual_time
async def test_a_small_state_of_another_group_is_refused() -> None:
    async with one_follower() as leader:
        state = state_behind(make_frames(20))
        state.group = "another"
        message = Reset(DEFAULT_GROUP, leader.term, state.encode(), 7)
        assert await leader.ask(message) == [answered(leader, PushResult.INCONSISTENT_STATE)]
        assert leader.follower.log.last.position == 0


@virtual_time
async def test_without_room_the_log_stays_as_it_was_and_the_leader_is_told() -> None:
    async with one_follower() as leader:

        async def no_room(log_state: bytes) -> None:
            raise error(Code.DISK_FULL, f"no room for {len(log_state)} bytes")

        leader.follower.log.reset = no_room  # type: ignore[method-assign]
        assert await leader.ask(reset_to(make_frames(20))) == [answered(leader, PushResult.DISK_FULL)]
        assert leader.follower.log.last.position == 0


@pytest.mark.parametrize(("damaged", "end"), [(0, 14), (13, 12)])
@virtual_time
async def test_only_what_cannot_be_committed_is_cut_before_a_log_begins_anew(damaged: int, end: int) -> None:
    """The leader's log begins at 15; the follower's is another one from 12 on, and what both had was acknowledged. What
    is damaged below goes too: there may be no copy of it. But it may be committed, so this node does not vote without
    it, nor after a restart."""
    async with one_follower(term=2) as leader:
        both = make_frames(11)
        own = both + make_frames(9, after=both)
        await filled(leader, own)
        log = leader.follower.log

        async def no_room(log_state: bytes) -> None:
            raise error(Code.DISK_FULL, f"no room for {len(log_state)} bytes")

        log.reset = no_room  # type: ignore[method-assign]
        if damaged:
            there = DamagedRange(Position(damaged), Position(damaged), point_of(own[: damaged - 1]))
            log.damaged = lambda: [there]  # type: ignore[method-assign]
        begins = reset_to(both + make_frames(4, term=2, after=both), term=2)
        assert await leader.ask(begins) == [answered(leader, PushResult.DISK_FULL)]
        assert log.last == point_of(own[:end])
        assert leader.follower.replica.core.may_vote == (not damaged)
        assert leader.follower.owes_catch_up == bool(damaged)


@virtual_time
async def test_a_comparison_below_the_followers_start_is_answered_with_its_start() -> None:
    async with one_follower() as leader:
        frames = make_frames(20)
        await leader.ask(reset_to(frames))
        assert await leader.compare(frames[4].header.point) == [leader.compared(PushResult.INCONSISTENT_STATE, 20, 1)]
        assert await leader.truncate(frames[4].header.point) == [leader.truncated(PushResult.INCONSISTENT_STATE)]
        assert leader.follower.failure is None
        assert leader.follower.log.last.position == Position(20)
