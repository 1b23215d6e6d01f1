"""Reads: linearizable by a round of a quorum, committed by the node's own knowledge, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from dledger.common.batch import records_of
from dledger.common.config import Limits, Timings
from dledger.common.errors import Code, DLedgerError, InvalidRequest, NotLeader, OutOfRange, Unavailable
from dledger.common.types import Consistency, Entry, Index, Position
from dledger.group.reads.read_service import TURN_BYTES
from dledger.log.frame.frame import Frame
from dledger.raft.messages import Append, Heartbeat, HeartbeatResponse
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import settle, virtual_time

LINEARIZABLE, COMMITTED = Consistency.LINEARIZABLE, Consistency.COMMITTED
PATIENCE_S = Timings().quorum_ack_timeout_ms / 1000


def point_of(node: SimNode) -> asyncio.Task[object]:
    return asyncio.create_task(node.replica.reader.read_point(LINEARIZABLE))


async def leader_that_cannot_commit(cluster: SimCluster) -> tuple[SimNode, Rule]:
    """Elected, and heard: what it appends reaches nobody before the rule is removed."""
    rule = cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Append), drop_share=1))
    await cluster.until(lambda: any(node.leads for node in cluster.up()))
    return next(node for node in cluster.up() if node.leads), rule


async def give_up(readings: list[asyncio.Task[object]]) -> None:
    for reading in readings:
        reading.cancel()
    await asyncio.wait(readings)


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


def unconfirmed(cluster: SimCluster) -> Rule:
    """No quorum says that the leader still leads, until the rule is removed."""
    return cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, HeartbeatResponse), drop_share=1))


@virtual_time
async def test_a_linearizable_read_waits_until_the_term_has_committed_its_first_frame() -> None:
    async with SimCluster(3) as cluster:
        leader, stop = await leader_that_cannot_commit(cluster)
        reading = point_of(leader)
        await asyncio.sleep(0.3)
        assert not reading.done()
        cluster.faults.remove(stop)
        await reading


@virtual_time
async def test_a_linearizable_read_waits_for_a_quorum_to_say_that_the_leader_still_leads() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        stop = unconfirmed(cluster)
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
async def test_reads_go_on_when_whoever_had_not_answered_a_round_is_removed() -> None:
    async with SimCluster(2) as cluster:
        leader = await cluster.leader()
        (other,) = cluster.others(leader)
        await leader.append(b"x")
        await cluster.level()
        reading = asyncio.ensure_future(leader.get(0))
        await asyncio.sleep(0)  # its round asks the other voter
        await leader.replica.members.remove(other.id)
        assert (await reading).value == b"x"
        assert (await leader.get(0)).value == b"x"


@virtual_time
async def test_a_reader_that_goes_away_holds_up_nobody() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        gone, stays = point_of(leader), point_of(leader)
        await asyncio.sleep(0)
        gone.cancel()
        await stays


@virtual_time
async def test_a_read_at_a_leader_that_cannot_commit_is_refused_when_an_append_would_be_and_told_why() -> None:
    loop = asyncio.get_running_loop()
    async with SimCluster(3) as cluster:
        leader, stop = await leader_that_cannot_commit(cluster)
        await asyncio.sleep(1)
        begun_s = loop.time()
        with pytest.raises(Unavailable, match=r"has not committed in its term yet: n\d is 1 frames behind") as refusal:
            await point_of(leader)
        assert refusal.value.code is Code.LEADER_NOT_READY
        assert loop.time() - begun_s == pytest.approx(PATIENCE_S, abs=0.2)
        assert leader.leads
        cluster.faults.remove(stop)
        await point_of(leader)


@virtual_time
async def test_each_read_has_a_patience_of_its_own() -> None:
    async with SimCluster(3) as cluster:
        leader, stop = await leader_that_cannot_commit(cluster)
        first = point_of(leader)
        await asyncio.sleep(PATIENCE_S / 2)
        second = point_of(leader)
        await asyncio.wait([first])
        assert first.exception() is not None
        assert not second.done()
        cluster.faults.remove(stop)
        await second


@virtual_time
async def test_a_round_that_no_quorum_answers_is_waited_for_no_longer_by_those_who_asked_nor_by_those_behind() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        stop = unconfirmed(cluster)
        readings = [point_of(leader)]
        await asyncio.sleep(0)
        readings.append(point_of(leader))
        while not all(reading.done() for reading in readings):
            await leader.append(b"keeps the followers heard")
            await asyncio.sleep(0.1)
        assert leader.leads
        for reading in readings:
            with pytest.raises(Unavailable, match="no quorum confirms that this node leads"):
                await reading
        cluster.faults.remove(stop)
        await point_of(leader)


@virtual_time
async def test_a_read_that_is_given_up_leaves_nothing_behind() -> None:
    async with SimCluster(3) as cluster:
        leader, stop = await leader_that_cannot_commit(cluster)
        reader = leader.replica.reader
        before_a_round = [point_of(leader) for _ in range(100)]
        await settle()
        assert len(reader._waiting) == 100
        await give_up(before_a_round)
        assert not reader._waiting
        cluster.faults.remove(stop)
        await cluster.leader()
        in_a_round = [point_of(leader) for _ in range(100)]
        await asyncio.sleep(0)
        assert reader._asked
        await give_up(in_a_round)
        assert not reader._asked
        assert not reader._waiting


@virtual_time
async def test_reads_that_are_given_up_in_a_round_do_not_begin_another_before_it_is_answered() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await asyncio.sleep(0.01)
        follower = cluster.others(leader)[0]
        rounds = cluster.faults.add(Rule(lambda _s, to, m: isinstance(m, Heartbeat) and to == follower.id))
        for _ in range(10):
            reading = point_of(leader)
            await asyncio.sleep(0)
            await give_up([reading])
        assert rounds.seen == 1
        await point_of(leader)


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
async def test_what_was_read_can_be_read_again_without_what_only_nodes_write() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        for record in (b"a", b"b", b"c", b"d"):
            await leader.append(record)
        reader = leader.replica.reader
        point = await reader.read_point(COMMITTED)
        [(frames, _)] = [each async for each in reader.read(0, None, point, follow=False)]
        first, last = Position(frames[0].header.position), Position(frames[-2].header.position)
        again = await reader.again(Position(1), last)  # the frame before the first record is the leader's own
        assert await reader.again(first, last) == frames[:-1] == again


@virtual_time
async def test_a_reader_without_room_gets_less_at_a_time() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        for _ in range(8):
            await leader.append(bytes(100_000))
        reader = leader.replica.reader
        point = await reader.read_point(COMMITTED)

        async def first_message(room: int) -> int:
            async def turn() -> int:
                return room

            reading = reader.read(0, None, point, follow=False, turn=turn)
            frames, _ = await anext(reading)
            return len(frames)

        assert await first_message(0) < await first_message(500_000) < await first_message(1 << 30)


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


# Many records at once ------------------------------------------------------------------------------------------------


@dataclass
class FrameReads:
    """How often a node's log was asked for a frame, and in which turns of the loop."""

    turns: list[int]

    @classmethod
    def of(cls, node: SimNode, monkeypatch: pytest.MonkeyPatch) -> FrameReads:
        reads, turn, frame_of = cls([]), 0, node.log.frame_of
        loop = asyncio.get_running_loop()

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        async def counted(index: Index) -> Frame:
            reads.turns.append(turn)
            return await frame_of(index)

        count()
        monkeypatch.setattr(node.log, "frame_of", counted)
        return reads


@virtual_time
async def test_many_gets_of_one_frame_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimCluster(1) as cluster:
        node = await cluster.leader()
        for batch in range(3):
            await node.append(*(b"%d" % (100 * batch + number) for number in range(100)))
        reads = FrameReads.of(node, monkeypatch)
        asked = [*range(299, -1, -3), 7, 7]
        reader = node.replica.reader
        found = await reader.get_many(asked, await reader.read_point(COMMITTED))
        assert [entry.value for entry in found if isinstance(entry, Entry)] == [b"%d" % index for index in asked]
        assert len(reads.turns) == 3


@virtual_time
async def test_of_many_gets_each_is_refused_for_itself() -> None:
    async with SimCluster(1) as cluster:
        node = await cluster.leader()
        await node.append(b"only")
        reader = node.replica.reader
        found = await reader.get_many([1, 0, -1], await reader.read_point(COMMITTED))
        codes = [each.code if isinstance(each, DLedgerError) else each.value for each in found]
        assert codes == [Code.INDEX_OUT_OF_RANGE, b"only", Code.INDEX_LESS_THAN_LOCAL_BEGIN]


@virtual_time
async def test_one_record_asked_for_too_often_is_too_much_for_one_answer() -> None:
    async with SimCluster(1, limits=Limits(max_batch_bytes=2_000, max_record_bytes=1_000)) as cluster:
        node = await cluster.leader()
        await node.append(bytes(1_000))
        reader = node.replica.reader
        point = await reader.read_point(COMMITTED)
        assert len(await reader.get_many([0, 0], point)) == 2
        with pytest.raises(InvalidRequest) as refusal:
            await reader.get_many([0, 0, 0], point)
        assert refusal.value.code is Code.BATCH_TOO_LARGE


@pytest.mark.parametrize("messages", [1, 10])
@virtual_time
async def test_between_two_large_frames_everything_else_has_its_turn(
    monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    """However many messages ask at once: heartbeats are not held up by what readers want."""
    async with SimCluster(1) as cluster:
        node = await cluster.leader()
        for _ in range(5):
            await node.append(bytes(TURN_BYTES), b"small")
        reads = FrameReads.of(node, monkeypatch)
        reader = node.replica.reader
        point = await reader.read_point(COMMITTED)
        await asyncio.gather(*(reader.get_many(range(1, 10, 2), point) for _ in range(messages)))
        assert len(reads.turns) == len(set(reads.turns)) == 5 * messages
