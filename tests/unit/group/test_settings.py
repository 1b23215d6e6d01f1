"""What the group agrees on while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dledger.common.config import Timings
from dledger.common.errors import Code, InvalidRequest, NotLeader, OutcomeUnknown, UnknownMember
from dledger.common.types import GroupSettings, NodeId, PreferredLeader
from dledger.group.replica import Replica
from dledger.log.frame.frame import ControlKind
from dledger.raft.messages import Append, Message
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster
from tests.support.virtual_time import virtual_time

PATIENCE_S = Timings().quorum_ack_timeout_ms / 1000


def prefers(*ids: str) -> tuple[PreferredLeader, ...]:
    return tuple(PreferredLeader(NodeId(node_id), 10 - at) for at, node_id in enumerate(ids))


def hold_appends(cluster: SimCluster) -> Callable[[], None]:
    """The leader is heard, and answered, and nothing of what it appends is committed, until the result is called."""
    held = cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Append), drop_share=1))
    return lambda: cluster.faults.remove(held)


Ask = Callable[[Replica], Awaitable[object]]
ASKS = [
    pytest.param(lambda replica: replica.settings.set_preferred(prefers("n0")), id="preferred leaders"),
    pytest.param(lambda replica: replica.retention.set(1_000_000, 2_000_000), id="retention"),
]


def is_of(message: Message, kind: ControlKind) -> bool:
    return isinstance(message, Append) and any(frame.header.attributes == kind for frame in message.frames)


async def is_unknown(asked: Awaitable[object]) -> bool:
    with pytest.raises(OutcomeUnknown) as unknown:
        await asked
    return unknown.value.code is Code.WAIT_QUORUM_ACK_TIMEOUT


@virtual_time
async def test_what_is_set_holds_on_every_node_and_after_a_restart() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        wanted = prefers(leader.id)
        assert await leader.replica.settings.set_preferred(wanted) == GroupSettings(wanted)
        await leader.replica.retention.set(1_000_000, 2_000_000)
        await cluster.level()
        for node in cluster.up():
            node.crash()
        for node in cluster.nodes.values():
            await node.start()
        await cluster.leader()
        assert {node.log.state.settings for node in cluster.up()} == {GroupSettings(wanted, 1_000_000, 2_000_000)}


@virtual_time
async def test_changes_made_at_once_keep_each_other() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        wanted = prefers(leader.id)
        await asyncio.gather(
            leader.replica.settings.set_preferred(wanted), leader.replica.retention.set(1_000_000, 2_000_000)
        )
        assert leader.log.state.settings == GroupSettings(wanted, 1_000_000, 2_000_000)


@virtual_time
async def test_what_is_so_already_is_not_written_again() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        wanted = prefers(leader.id)
        await leader.replica.settings.set_preferred(wanted)
        last = leader.log.last
        assert await leader.replica.settings.set_preferred(wanted) == GroupSettings(wanted)
        assert leader.log.last == last


@virtual_time
async def test_a_wish_that_is_in_the_log_and_not_committed_is_waited_for() -> None:
    """Whoever asked for it first may have given up."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        wanted = prefers(leader.id)
        followers = cluster.others(leader)
        for follower in followers:
            follower.crash()
        first = asyncio.ensure_future(leader.replica.settings.set_preferred(wanted))
        await cluster.until(lambda: leader.log.state.settings == GroupSettings(wanted))
        first.cancel()
        again = asyncio.ensure_future(leader.replica.settings.set_preferred(wanted))
        await asyncio.sleep(0.1)
        assert not again.done()
        for follower in followers:
            await follower.start()
        assert await again == GroupSettings(wanted)


@pytest.mark.parametrize("ask", ASKS)
@virtual_time
async def test_what_no_quorum_acknowledged_in_time_is_unknown_to_whoever_asks_again_until_it_is_committed(
    ask: Ask,
) -> None:
    loop = asyncio.get_running_loop()
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        release = hold_appends(cluster)
        assert await is_unknown(ask(leader.replica))
        last, begun_s = leader.log.last, loop.time()
        assert await is_unknown(ask(leader.replica))
        assert loop.time() - begun_s == pytest.approx(PATIENCE_S, abs=0.2)
        again = asyncio.ensure_future(ask(leader.replica))
        await asyncio.sleep(0.1)
        assert not again.done()
        release()
        await again
        assert leader.log.last == last, "nothing was written again"


@virtual_time
async def test_what_is_committed_is_told_at_once_though_nothing_behind_it_is() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        wanted = prefers(leader.id)
        await leader.replica.settings.set_preferred(wanted)
        release = hold_appends(cluster)
        pending = leader.submit(b"behind it")
        async with asyncio.timeout(0.1):
            assert await leader.replica.settings.set_preferred(wanted) == GroupSettings(wanted)
        assert not pending.done()
        release()
        await pending


@virtual_time
async def test_a_leader_that_leads_again_waits_for_no_frame_that_was_cut_meanwhile() -> None:
    async with SimCluster(3) as cluster:
        old = await cluster.leader()
        await cluster.level()
        others = cluster.others(old)
        cluster.faults.partition([old.id], [node.id for node in others])
        cut = [old.replica.appender.new_producer() for _ in range(20)]
        with pytest.raises(OutcomeUnknown):
            await old.replica.settings.set_preferred(prefers(old.id))
        await asyncio.gather(*cut, return_exceptions=True)
        cut_from = old.log.last.position
        await cluster.until(lambda: any(node.leads for node in others))
        cluster.network.heal()
        await cluster.level()
        await (await cluster.leader()).replica.handover.transfer(old.id)
        assert await cluster.leader() is old
        assert old.commit_position < cut_from
        async with asyncio.timeout(0.1):
            assert await old.replica.settings.set_preferred([]) == GroupSettings()


@virtual_time
async def test_a_removal_is_done_when_it_is_committed_that_who_went_is_not_preferred() -> None:
    async with SimCluster(5) as cluster:
        leader = await cluster.leader()
        leaving = cluster.others(leader)[0]
        await leader.replica.settings.set_preferred(prefers(leader.id, leaving.id))
        remove = leader.replica.members.remove
        kept = cluster.faults.add(Rule(lambda _s, _t, m: is_of(m, ControlKind.SETTINGS), drop_share=1))
        assert await is_unknown(remove(leaving.id))
        assert await is_unknown(remove(leaving.id))
        cluster.faults.remove(kept)
        await remove(leaving.id)
        assert leader.log.state.settings.preferred == prefers(leader.id)


@virtual_time
async def test_the_preference_is_cleared_by_an_empty_one() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.replica.settings.set_preferred(prefers(leader.id))
        assert await leader.replica.settings.set_preferred([]) == GroupSettings()


@virtual_time
async def test_who_is_no_member_cannot_be_preferred() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        with pytest.raises(UnknownMember, match="'n9' is not a member"):
            await leader.replica.settings.set_preferred(prefers("n9"))
        with pytest.raises(InvalidRequest, match="named twice"):
            await leader.replica.settings.set_preferred(prefers("n0", "n0"))


@virtual_time
async def test_who_leaves_while_a_preference_waits_its_turn_is_not_preferred() -> None:
    """The id may come back as another node."""
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        leaving = cluster.others(leader)[0].id
        first = asyncio.ensure_future(leader.replica.retention.set(1_000_000, None))
        waiting = asyncio.ensure_future(leader.replica.settings.set_preferred(prefers(leaving)))
        leaves = asyncio.ensure_future(leader.replica.members.remove(leaving))
        await cluster.until(lambda: first.done() and leaves.done() and waiting.done())
        assert isinstance(waiting.exception(), UnknownMember)
        assert leader.log.state.settings.preferred == ()


@virtual_time
async def test_a_follower_changes_nothing() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        with pytest.raises(NotLeader) as refused:
            await cluster.others(leader)[0].replica.settings.set_preferred([])
        assert refused.value.code is Code.NOT_LEADER


@virtual_time
async def test_a_dry_run_says_who_would_be_preferred_and_writes_nothing() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        last, wanted = leader.log.last, [PreferredLeader(NodeId("n1"), 9)]
        told = await leader.replica.settings.set_preferred(wanted, dry_run=True)
        assert told.preferred == tuple(wanted)
        with pytest.raises(UnknownMember):
            await leader.replica.settings.set_preferred([PreferredLeader(NodeId("n9"), 9)], dry_run=True)
        assert (leader.log.last, leader.log.state.settings) == (last, GroupSettings())
