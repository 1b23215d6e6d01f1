"""A leader's side of replication: when it asks, how much it sends, and when it asks again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from dledger.common.config import Limits, Timings
from dledger.common.errors import Code
from dledger.common.types import NodeId, Position
from dledger.raft.messages import Append, AppendResponse, Compare, CompareResponse, Message, PushResult
from dledger.raft.replication import PushState
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import virtual_time
from tests.unit.group.logs import DiskLikeLog, FullLog

TIMINGS = Timings()


@dataclass
class Tap:
    """What is sent to one node from now on."""

    to: NodeId
    messages: list[Message] = field(default_factory=list)

    def listens(self, _source: NodeId, target: NodeId, message: Message) -> bool:
        if target == self.to:
            self.messages.append(message)
        return False

    def pushes(self) -> list[Append]:
        return [message for message in self.messages if isinstance(message, Append)]

    def compares(self) -> list[Compare]:
        return [message for message in self.messages if isinstance(message, Compare)]


def tap(cluster: SimCluster, node: SimNode) -> Tap:
    new = Tap(node.id)
    cluster.faults.add(Rule(new.listens))
    return new


def lose_answers(cluster: SimCluster, follower: SimNode) -> Rule:
    return cluster.faults.add(
        Rule(lambda source, _t, m: source == follower.id and isinstance(m, AppendResponse), drop_share=1)
    )


@virtual_time
async def test_a_level_follower_is_asked_once_and_sent_only_what_is_new() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        heard = tap(cluster, cluster.others(leader)[0])
        for _ in range(10):
            await leader.append(b"x")
        await asyncio.sleep(10)
        assert heard.compares() == []
        assert [len(push.frames) for push in heard.pushes()] == [1] * 10


@virtual_time
async def test_no_more_is_in_flight_than_the_window_holds() -> None:
    async with SimCluster(3, limits=Limits(push_window_frames=5)) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        follower = cluster.others(leader)[0]
        lost = lose_answers(cluster, follower)
        heard = tap(cluster, follower)
        for _ in range(20):
            await leader.append(b"x")
        assert len(heard.pushes()) == 5
        cluster.faults.remove(lost)
        await cluster.level()


@virtual_time
async def test_a_push_is_about_as_large_as_a_message_may_be() -> None:
    async with SimCluster(3, limits=Limits(push_message_bytes=1000)) as cluster:
        leader = await cluster.leader()
        follower = cluster.others(leader)[0]
        follower.crash()
        for _ in range(20):
            await leader.append(b"x" * 200)
        heard = tap(cluster, follower)
        await follower.start()
        await cluster.level()
        sizes = [sum(frame.header.stored_bytes for frame in push.frames) for push in heard.pushes()]
        assert max(sizes) <= 1000
        assert len(sizes) <= 8


@virtual_time
async def test_between_two_messages_to_who_catches_up_everything_else_has_a_turn() -> None:
    """They are many, and each takes its time to build; heartbeats, and appends, do not wait for all of them."""
    async with SimCluster(3, limits=Limits(push_message_bytes=100)) as cluster:
        leader = await cluster.leader()
        follower = cluster.others(leader)[0]
        follower.crash()
        for _ in range(20):
            await leader.append(b"x" * 200)
        turns: list[int] = []  # pushes in each

        def count(_source: NodeId, target: NodeId, message: Message) -> bool:
            if target == follower.id and isinstance(message, Append):
                if not is_same_turn:
                    turns.append(0)
                    is_same_turn.append(True)
                    asyncio.get_running_loop().call_soon(is_same_turn.clear)
                turns[-1] += 1
            return False

        is_same_turn: list[bool] = []
        cluster.faults.add(Rule(count))
        await follower.start()
        await cluster.level()
        assert max(turns) <= 2, "one by an answer that came in, one by the task"
        assert sum(turns) >= 20


CATCH_UP_BYTES_PER_S = 10_000
MISSED_BYTES = 50_000


async def seconds_to_catch_up(*, append_every_s: float | None) -> float:
    """A follower missed ``MISSED_BYTES``, and others append meanwhile, or do not."""
    limits = Limits(catch_up_bytes_per_s=CATCH_UP_BYTES_PER_S, push_message_bytes=2000)
    async with SimCluster(3, limits=limits) as cluster:
        leader = await cluster.leader()
        DiskLikeLog.of(leader.log)
        follower = cluster.others(leader)[0]
        follower.crash()
        for _ in range(MISSED_BYTES // 1000):
            await leader.append(b"x" * 900)
        goal = leader.log.last.position
        await follower.start()
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        async def append_for_ever(every_s: float) -> None:
            while True:
                await leader.append(b"y")
                await asyncio.sleep(every_s)

        others = loop.create_task(append_for_ever(append_every_s)) if append_every_s else None
        await cluster.until(lambda: follower.log.last.position >= goal)
        if others is not None:
            others.cancel()
        return loop.time() - began_s


@virtual_time
async def test_a_follower_that_was_away_catches_up_at_its_pace_while_others_append() -> None:
    assert 4 < await seconds_to_catch_up(append_every_s=0.1) < 7


@virtual_time
async def test_a_follower_that_was_away_catches_up_as_fast_as_it_can_while_nobody_appends() -> None:
    assert await seconds_to_catch_up(append_every_s=None) < 2


@virtual_time
async def test_an_answer_that_is_overdue_makes_it_compare_again() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        follower = cluster.others(leader)[0]
        lost = lose_answers(cluster, follower)
        heard = tap(cluster, follower)
        await leader.append(b"x")
        resend_s = TIMINGS.push_resend_ms / 1000
        await asyncio.sleep(resend_s * 0.9)
        assert heard.compares() == []
        await asyncio.sleep(resend_s * 0.4)
        assert len(heard.compares()) == 1
        assert leader.replica.dispatchers[follower.id].progress.match < leader.log.last.position
        cluster.faults.remove(lost)
        await cluster.until(lambda: leader.replica.dispatchers[follower.id].progress.match == leader.log.last.position)


@virtual_time
async def test_an_acknowledgement_that_was_lost_is_asked_for_while_idle() -> None:
    async with SimCluster(2) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        lost = lose_answers(cluster, cluster.others(leader)[0])
        pending = leader.submit(b"x")
        await asyncio.sleep(1.5)
        cluster.faults.remove(lost)
        assert (await pending).base_index == 0


@virtual_time
async def test_a_new_connection_makes_it_compare_again_at_once() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        follower = cluster.others(leader)[0]
        heard = tap(cluster, follower)
        cluster.network.disconnect(leader.id, follower.id)
        await cluster.until(lambda: bool(heard.compares()), within_s=0.1)
        await cluster.level()


@virtual_time
async def test_a_follower_with_a_full_disk_is_left_in_peace_for_a_while_and_then_filled() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        follower = cluster.others(leader)[0]
        log = FullLog.of(follower.log)
        log.is_full = True
        heard = tap(cluster, follower)
        for _ in range(10):
            await leader.append(b"x")
        await asyncio.sleep(5)
        assert len(heard.pushes()) <= 10 + 2 * 11, "about two tries a second, not one a heartbeat or a loop"
        log.is_full = False
        await cluster.level()


@virtual_time
async def test_a_follower_that_diverged_is_left_alone() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        follower = cluster.others(leader)[0]
        dispatcher = leader.replica.dispatchers[follower.id]
        dispatcher.progress.restart(leader.log.last.position)
        request_id = dispatcher.progress.asked(leader.replica.now_ms())
        diverged = CompareResponse(
            "default", leader.replica.term, PushResult.DIVERGED, Position(1), leader.replica.term, request_id
        )
        leader.on_message(follower.id, diverged)
        heard = tap(cluster, follower)
        for _ in range(5):
            await leader.append(b"x")
        await asyncio.sleep(5)
        assert heard.pushes() == []
        assert heard.compares() == []


@pytest.mark.parametrize("admits_loss", [False, True])
@virtual_time
async def test_who_lacks_what_it_acknowledged_is_in_doubt_unless_it_says_so_itself(admits_loss: bool) -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"x")
        await cluster.level()
        replica, follower = leader.replica, cluster.others(leader)[0]
        progress = replica.dispatchers[follower.id].progress
        progress.restart(leader.log.last.position)
        request_id = progress.asked(replica.now_ms())
        short, of_term = Position(progress.match - 1), replica.term
        answer = CompareResponse(
            "default", replica.term, PushResult.INCONSISTENT_STATE, short, of_term, request_id, admits_loss
        )
        leader.on_message(follower.id, answer)
        assert replica.core.doubted == (set() if admits_loss else {follower.id})


@virtual_time
async def test_a_dispatcher_ends_with_its_term() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.replica.handover.transfer(None)
        await cluster.leader()
        assert leader.replica.dispatchers == {}
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert sum(name.startswith("entry-dispatcher") for name in names) == 2


@virtual_time
async def test_a_leader_that_cannot_read_its_own_log_stops_and_says_so() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        dispatcher = leader.replica.dispatchers[cluster.others(leader)[0].id]

        async def unreadable(position: Position) -> None:
            raise AssertionError(f"cannot read {position}")

        leader.log.point_at = unreadable  # type: ignore[method-assign, assignment]
        dispatcher.progress.restart(leader.log.last.position)
        assert dispatcher.progress.state is PushState.COMPARE
        dispatcher.wake()
        await asyncio.sleep(0.1)
        assert leader.failure is not None
        assert leader.failure.code is Code.INTERNAL_ERROR
        leader.failure = None
        del leader.log.point_at
