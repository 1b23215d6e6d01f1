"""Members of a running cluster come, go and lose their disks, under load: nothing is lost, no caller hears of it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import dledger
from dledger.client.admin_calls import Admin
from dledger.v1 import admin_pb2
from tests.integration.load import Load
from tests.integration.nodes import POLL_S, Nodes, Stubs, eventually, running


@asynccontextmanager
async def admin_of(nodes: Nodes) -> AsyncIterator[Admin]:
    async with dledger.connect(nodes.cluster.endpoints) as log:
        yield log.admin


async def start_new(nodes: Nodes, node_id: str) -> str:
    """A node of the cluster that is no member of `default` yet; its peer address."""
    node = await nodes.cluster.add(node_id)
    nodes.ids.append(node_id)
    nodes.stubs[node_id] = Stubs(node.client_address)
    async with dledger.connect(nodes.cluster.endpoints, group="meta") as meta:
        await meta.admin.add_learner(node_id, node.peer_address)
    return node.peer_address


async def leave_cluster(nodes: Nodes, node_id: str) -> None:
    """As soon as a majority of the others is fit."""
    async with dledger.connect(nodes.cluster.endpoints, group="meta") as meta:
        await once_it_passes(lambda: meta.admin.remove(node_id))


async def promote(admin: Admin, node_id: str) -> None:
    """As soon as it has caught up."""
    await once_it_passes(lambda: admin.promote(node_id))


async def once_it_passes(ask: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                await ask()
            except dledger.ChangeRefused:
                await asyncio.sleep(POLL_S)
            else:
                return


async def follower_as_seen(nodes: Nodes, node_id: str) -> admin_pb2.FollowerStatus:
    status = await nodes[await nodes.leader()].status()
    return next(follower for follower in status.followers if follower.id == node_id)


async def test_five_nodes_are_replaced_by_five_new_ones_under_load(tmp_path: Path) -> None:
    async with running(tmp_path, nodes=5) as nodes, admin_of(nodes) as admin:
        old = list(nodes.ids)
        load = Load(nodes.cluster.endpoints)
        async with load:
            for at, gone in enumerate(old, 5):
                address = await start_new(nodes, f"n{at}")
                await admin.add_learner(f"n{at}", address)
                await promote(admin, f"n{at}")
                await admin.remove(gone)
                await leave_cluster(nodes, gone)
                assert await nodes.terminate(gone) == [0]
                await load.next_ack()
        new = [f"n{at}" for at in range(5, 10)]
        assert (await nodes.settled())[3] in new
        for status in await nodes.statuses():
            assert [member.id for member in status.members if member.voter] == new
        meta = [await nodes[node_id].status("meta") for node_id in new]
        assert all({member.id for member in status.members} == {*new} for status in meta)
        load.endpoints = nodes.cluster.endpoints
        await load.check(*new)


async def test_five_nodes_are_restarted_one_after_the_other_under_load(tmp_path: Path) -> None:
    async with running(tmp_path, nodes=5) as nodes:
        load = Load(nodes.cluster.endpoints)
        async with load:
            for node_id in nodes.ids:
                assert await nodes.terminate(node_id) == [0]
                await nodes.restart(node_id)
                await load.next_ack()
        await nodes.settled()
        await load.check(*nodes.ids)


async def test_a_replaced_cluster_starts_again_from_its_data_alone(tmp_path: Path) -> None:
    """Each node with the command line it always had, whoever that names."""
    async with running(tmp_path, nodes=3) as nodes, admin_of(nodes) as admin:
        await nodes[await nodes.leader()].append(b"x")
        address = await start_new(nodes, "n3")
        await admin.add_learner("n3", address)
        await promote(admin, "n3")
        await admin.remove("n0")
        await leave_cluster(nodes, "n0")
        await nodes.terminate(*nodes.running)
        for node_id in ("n1", "n2", "n3"):
            await nodes.cluster.restart(node_id)
        leader = await nodes.leader()
        assert (await nodes[leader].get(0)).entry.value == b"x"
        assert {member.id for member in (await nodes[leader].status()).members} == {"n1", "n2", "n3"}
        term = (await nodes[leader].status()).term
        await nodes.cluster.restart("n0")
        await asyncio.sleep(3)
        status = await nodes[leader].status()
        assert (status.role, status.term) == ("leader", term), "a removed node that starts again disturbs nobody"
        removed = await nodes["n0"].status("meta")
        assert removed.role == "removed"
        assert {refusal.reason for refusal in removed.refused_by} == {"UNKNOWN_MEMBER"}


async def test_an_emptied_data_directory_does_not_vote_until_it_is_readmitted(tmp_path: Path) -> None:
    async with running(tmp_path, nodes=3) as nodes, admin_of(nodes) as admin:
        leader = await nodes.leader()
        wiped, other = await nodes.followers()
        await nodes[leader].append(b"acknowledged by all")
        await nodes.settled()
        await nodes.cluster.kill(wiped)
        shutil.rmtree(nodes.cluster.nodes[wiped].data_dir)
        await nodes.restart(wiped)
        assert not (await follower_as_seen(nodes, wiped)).counts

        await nodes.cluster.kill(leader)
        await asyncio.sleep(3)
        assert {status.role for status in await nodes.statuses()} <= {"follower", "candidate", "learner"}
        await nodes.restart(leader)

        async with dledger.connect(nodes.cluster.endpoints, group="meta") as meta:
            await meta.admin.readmit(wiped)
        await admin.readmit(wiped)
        await promote(admin, wiped)
        await nodes.settled()
        now_leading = await nodes.leader()
        await nodes.cluster.kill(now_leading if now_leading != wiped else other)

        async def elected() -> bool:
            return any(status.role == "leader" for status in await nodes.statuses())

        await eventually(elected, "the readmitted node's vote makes a leader")
        async with dledger.connect(nodes.cluster.endpoints) as log:
            assert (await log.append(b"resting on it")).index == 1
            assert (await log.get(0)).value == b"acknowledged by all"


async def test_a_learner_reads_and_its_loss_costs_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, nodes=3) as nodes, admin_of(nodes) as admin:
        address = await start_new(nodes, "n3")
        await admin.add_learner("n3", address)
        async with dledger.connect(nodes.cluster.endpoints) as log:
            await log.append(b"x")
            await nodes.settled()
            reading = log.read(0, 1, consistency=dledger.Consistency.COMMITTED, node="n3")
            assert [entry.value async for entry in reading] == [b"x"]
            assert (await nodes["n3"].status()).role == "learner"
            await nodes.cluster.kill("n3")
            await nodes.cluster.kill((await nodes.followers())[0])
            assert (await log.append(b"two of three voters")).index == 1
        with pytest.raises(dledger.ChangeRefused, match="not connected"):
            await admin.promote("n3")
