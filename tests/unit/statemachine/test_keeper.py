"""A leader makes checkpoints, has them confirmed, and trims its log by them. Nobody is left with a damaged state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import NodeId, PreferredLeader, Role
from dledger.raft.messages import MachineReport
from dledger.raft.state import VoteBlocker
from dledger.statemachine.records import Begin, Confirmed, End, Part, Version, decode
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import virtual_time
from tests.unit.statemachine.machines import NEVER, SOON, Machines
from tests.unit.statemachine.memory import Counter


def records(node: SimNode, kind: type) -> list[object]:
    found = [decode(index, value) for index, value in enumerate(node.committed(), node.first_index)]
    return [each for each in found if isinstance(each, kind)]


def stop_reports(cluster: SimCluster) -> Rule:
    return cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, MachineReport), drop_share=1))


@virtual_time
async def test_a_log_that_grew_is_trimmed_to_a_checkpoint_that_all_agree_on() -> None:
    async with SimCluster(3) as cluster, Machines(cluster) as machines:
        await machines.count(10)
        confirmed = await machines.confirmed()
        await cluster.until(lambda: all(node.first_index == confirmed for node in cluster.up()))
        assert {machine.value for machine in machines.of.values()} == {10}


@virtual_time
async def test_the_next_checkpoint_takes_the_place_of_the_last_one() -> None:
    async with SimCluster(3) as cluster, Machines(cluster) as machines:
        await machines.count(10)
        first = await machines.confirmed()
        await machines.count(10)
        second = await machines.confirmed(first)
        await cluster.until(lambda: all(node.first_index == second for node in cluster.up()))


@virtual_time
async def test_without_the_word_of_a_majority_nothing_is_trimmed() -> None:
    async with SimCluster(3) as cluster, Machines(cluster) as machines:
        rule = stop_reports(cluster)
        await machines.count(20)
        leader = await machines.leader()
        await cluster.until(lambda: bool(records(leader.node, End)))
        await asyncio.sleep(5)
        assert not records(leader.node, Confirmed)
        assert leader.node.first_index == 0
        cluster.faults.remove(rule)
        await machines.confirmed()


@virtual_time
async def test_a_new_leader_confirms_and_trims_what_the_last_one_left() -> None:
    async with SimCluster(3, segment_frames=4) as cluster, Machines(cluster) as machines:
        rule = stop_reports(cluster)
        await machines.count(10)
        leader = await machines.leader()
        await cluster.until(lambda: bool(records(leader.node, End)))
        leader.node.crash()
        leader.stop()
        cluster.faults.remove(rule)
        confirmed = await machines.confirmed()
        await cluster.until(lambda: all(0 < node.first_index <= confirmed for node in cluster.up()))


@virtual_time
async def test_a_node_that_comes_back_is_restored_from_the_confirmed_checkpoint() -> None:
    async with SimCluster(3) as cluster, Machines(cluster) as machines:
        away = machines.others(await machines.leader())[0]
        away.node.crash()
        away.stop()
        await machines.count(20)
        confirmed = await machines.confirmed()
        await cluster.until(lambda: all(node.first_index >= confirmed for node in cluster.up()))
        await away.node.start()
        back = machines.begin(away.node)
        await cluster.until(lambda: back.value == 20)
        assert back.runner.restores == 1
        assert back.runner.checkpoints.own is None, "who loads a checkpoint has no word on it"
        await cluster.until(lambda: away.node.first_index >= confirmed)


@virtual_time
async def test_a_node_without_a_state_carries_out_no_trim() -> None:
    async with SimCluster(3) as cluster, Machines(cluster) as machines:
        idle = machines.others(await machines.leader())[0]
        idle.stop()
        idle.node.replica.machine.attach(lambda: idle.keeper.status()._replace(confirmed_id=-1))
        await machines.count(20)
        leader = await machines.leader()
        await cluster.until(lambda: leader.node.first_index > 0)
        await asyncio.sleep(3)
        assert idle.node.first_index == 0
        machines.begin(idle.node)
        await cluster.until(lambda: idle.node.first_index == leader.node.first_index)


@virtual_time
async def test_a_follower_whose_state_differs_builds_it_anew_and_the_others_go_on() -> None:
    async with SimCluster(3) as cluster, Machines(cluster) as machines:
        await machines.count(3)
        await cluster.level()
        damaged = machines.others(await machines.leader())[0]
        await cluster.until(lambda: damaged.value == 3)
        damaged.runner.machine.value += 64
        await machines.count(20)
        await cluster.until(lambda: damaged.runner.rebuilds == 1)
        await cluster.until(lambda: damaged.value == 23)
        assert VoteBlocker.STOPPED_MACHINE not in damaged.node.replica.core.vote_blockers
        assert all(machine.runner.rebuilds == 0 for machine in machines.others(damaged))


@virtual_time
async def test_a_leader_whom_the_majority_contradicts_steps_down_and_its_checkpoint_is_never_used() -> None:
    async with SimCluster(3) as cluster, Machines(cluster) as machines:
        await machines.count(3)
        leader = await machines.leader()
        leader.runner.machine.value += 64
        for _ in range(7):
            await leader.runner.submit(b"1")
        await cluster.until(lambda: leader.runner.rebuilds > 0)
        await cluster.until(lambda: all(machine.value == 10 for machine in machines.of.values()))
        damaged = [each.id for each in records(leader.node, End)]  # type: ignore[attr-defined]
        await machines.count(20)
        confirmed = await machines.confirmed()
        assert confirmed not in damaged[:1]
        assert {machine.value for machine in machines.of.values()} == {30}


class Flipped(Counter):
    """Its digest follows the commands, whatever becomes of the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.flip = 0

    def checkpoint(self) -> Iterator[bytes]:
        return iter([b"%d" % (self.value + self.flip)])

    def digest(self) -> bytes:
        return self.fold(b"", b"%d" % self.value)


@virtual_time
async def test_no_end_is_written_of_parts_that_are_not_what_the_digest_says() -> None:
    async with SimCluster(3) as cluster, Machines(cluster, make=Flipped) as machines:
        leader = await machines.leader()
        machine = leader.runner.machine
        assert isinstance(machine, Flipped)
        machine.flip = 1
        term = leader.node.replica.term
        for _ in range(10):
            await leader.runner.submit(b"1")
        await cluster.until(lambda: leader.runner.rebuilds == 1)
        assert not records(leader.node, End)
        assert leader.node.replica.role is not Role.LEADER or leader.node.replica.term > term
        await machines.count(10)
        await machines.confirmed()
        await cluster.until(lambda: all(each.value == 20 for each in machines.of.values()))


@virtual_time
async def test_two_nodes_that_differ_alike_from_a_checkpoint_go_on_once_they_came_to_the_same_again() -> None:
    async with SimCluster(3) as cluster, Machines(cluster) as machines:
        await machines.count(3)
        leader = await machines.leader()
        leader.runner.machine.value += 64
        leader.keeper._confirm = _nothing  # type: ignore[method-assign, assignment]  # it does not hear
        for _ in range(7):
            await leader.runner.submit(b"1")
        others = machines.others(leader)
        await cluster.until(lambda: all(each.runner.rebuilds == 1 and each.value >= 10 for each in others))
        await asyncio.sleep(5)
        assert all(each.runner.rebuilds == 1 for each in others)


async def _nothing(_: object) -> None:
    return


# Checkpoints and handovers --------------------------------------------------------------------------------------------


class Slow(Counter):
    """Its checkpoint has many parts."""

    def checkpoint(self) -> Iterator[bytes]:
        return iter([b"0" * 1_000] * 40 + [b"%d" % self.value])

    def digest(self) -> bytes:
        return b"".join([self.fold(b"", b"%d" % self.value)])

    def fold(self, digest: bytes, part: bytes) -> bytes:
        return super().fold(b"", part)


@virtual_time
async def test_parts_are_paced_and_no_leadership_is_given_away_meanwhile() -> None:
    options = replace(SOON, checkpoint_bytes_per_s=4_000)
    async with SimCluster(3) as cluster, Machines(cluster, options, Slow) as machines:
        await machines.count(10)
        leader = await machines.leader()
        node, other = leader.node, machines.others(leader)[0].node
        await cluster.until(lambda: node.replica.machine.is_checkpointing)
        await node.replica.settings.set_preferred([PreferredLeader(NodeId(other.id), 5)])
        took_s = await cluster.until(lambda: not node.replica.machine.is_checkpointing, within_s=20)
        assert took_s > 8
        assert node.leads
        await cluster.until(lambda: other.leads)


@virtual_time
async def test_the_attempt_after_an_incomplete_one_goes_at_full_speed() -> None:
    options = replace(SOON, checkpoint_bytes_per_s=4_000)
    async with SimCluster(3) as cluster, Machines(cluster, options, Slow) as machines:
        await machines.count(10)
        leader = await machines.leader()
        await cluster.until(lambda: bool(records(leader.node, Part)))
        leader.node.crash()
        leader.stop()
        successor = await machines.leader()
        await cluster.until(lambda: bool(records(successor.node, End)), within_s=3)
        assert len(records(successor.node, Begin)) == 2


# Versions -------------------------------------------------------------------------------------------------------------


class Newer(Counter):
    version = 2


@virtual_time
async def test_commands_of_a_later_version_wait_until_all_voters_know_them() -> None:
    async with SimCluster(3) as cluster, Machines(cluster, NEVER, Newer) as machines:
        old = machines.others(await machines.leader())[0]
        machines.begin(old.node, Counter)
        await machines.count(1)
        leader = await machines.leader()
        await asyncio.sleep(3)
        assert leader.runner.agreed_version <= 2
        if not records(leader.node, Version):
            with pytest.raises(DLedgerError, match="all nodes know them") as refused:
                await leader.runner.submit(b"1", version=2)
            assert refused.value.code is Code.UNSUPPORTED_VERSION


@virtual_time
async def test_the_way_for_a_version_is_opened_once_the_last_voter_knows_it() -> None:
    async with SimCluster(3) as cluster:
        machines = Machines(cluster, NEVER, Newer)
        nodes = cluster.up()
        for node in nodes[1:]:
            machines.begin(node)
        machines.begin(nodes[0], Counter)
        async with asyncio.timeout(30):
            leader = await machines.leader()
            await leader.runner.submit(b"1")
            await asyncio.sleep(3)
            assert not records(leader.node, Version)
            machines.begin(nodes[0])
            await cluster.until(lambda: bool(records(leader.node, Version)))
        leader = await machines.leader()
        assert await leader.runner.submit(b"1", version=2) == 2
        await machines.__aexit__()


# Sessions -------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_session_that_nobody_uses_ends() -> None:
    options = replace(NEVER, session_idle_s=60)
    async with SimCluster(3) as cluster, Machines(cluster, options) as machines:
        await machines.count(2)
        leader = await machines.leader()
        assert len(leader.runner.sessions_used()) == 1
        await asyncio.sleep(50)
        await machines.count(1)
        await asyncio.sleep(50)
        assert len(leader.runner.sessions_used()) == 1
        await cluster.until(lambda: not leader.runner.sessions_used(), within_s=20)
        assert await leader.runner.submit(b"1") == 4, "in another session"
