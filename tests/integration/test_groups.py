"""Many groups on real nodes: made, led and lost apart from each other, and removed for good."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from dledger.client import Log, connect_cluster
from dledger.common.errors import DLedgerError
from dledger.common.types import DEFAULT_GROUP, META_GROUP
from dledger.v1 import admin_pb2
from tests.integration.nodes import Nodes, Refusal, eventually, refusal_in, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with running(tmp_path_factory.mktemp("groups")) as started:
        yield started


async def create(nodes: Nodes, name: str, *members: str) -> admin_pb2.GroupInfo:
    request = admin_pb2.CreateGroupRequest(name=name, members=members)
    answer: admin_pb2.CreateGroupResponse = await of_meta(nodes, "CreateGroup", request)
    return answer.group


async def delete(nodes: Nodes, name: str, *, force: bool = False) -> None:
    await of_meta(nodes, "DeleteGroup", admin_pb2.DeleteGroupRequest(name=name, force=force))


async def test_nothing_is_acknowledged_behind_a_deletion(nodes: Nodes) -> None:
    """What is appended while the group goes is acknowledged before, or refused."""
    async with connect_cluster(nodes.cluster.endpoints) as cluster:
        for attempt in range(3):
            await cluster.groups.create("short-lived")
            log = cluster.log("short-lived")
            await log.append(b"first")
            loop, is_deleted = asyncio.get_running_loop(), asyncio.Event()
            late: list[int] = []

            async def go_on(log: Log = log, is_deleted: asyncio.Event = is_deleted, late: list[int] = late) -> None:
                while True:
                    was_deleted = is_deleted.is_set()
                    ack = await log.append(b"more", timeout_ms=2_000)
                    if was_deleted:
                        late.append(ack.index)

            writers = [loop.create_task(go_on()) for _ in range(4)]
            await cluster.groups.delete("short-lived")
            is_deleted.set()
            outcomes = await asyncio.gather(*writers, return_exceptions=True)
            assert all(isinstance(each, DLedgerError) for each in outcomes), outcomes
            assert not late, f"acknowledged behind deletion {attempt}"


async def of_meta(nodes: Nodes, method: str, request: object) -> admin_pb2.CreateGroupResponse:
    """Asks whoever leads `meta`. Raises its refusal."""
    answers: list[admin_pb2.CreateGroupResponse] = []

    async def answered() -> bool:
        for node_id in nodes.running:
            try:
                answers.append(await getattr(nodes[node_id].admin, method)(request, timeout=5))
            except grpc.aio.AioRpcError as failure:
                if refusal_in(failure).reason not in ("NOT_LEADER", "LEADER_NOT_READY"):
                    raise
            else:
                return True
        return False

    await eventually(answered, f"the leader of meta answers {method}")
    return answers[0]


async def refused(nodes: Nodes, method: str, request: object) -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await of_meta(nodes, method, request)
    return refusal_in(failure.value)


async def append(nodes: Nodes, group: str, record: bytes) -> int:
    """By whichever node leads the group; its index."""
    indexes: list[int] = []

    async def appended() -> bool:
        for node_id in nodes.running:
            try:
                indexes.append((await nodes[node_id].append(record, group=group)).base_index)
            except grpc.aio.AioRpcError as failure:
                if refusal_in(failure).reason not in ("NOT_LEADER", "LEADER_NOT_READY", "NOT_HERE"):
                    raise
            else:
                return True
        return False

    await eventually(appended, f"{group} has a leader")
    return indexes[0]


def directory_of(nodes: Nodes, node_id: str, key: str) -> Path:
    return nodes.cluster.nodes[node_id].data_dir / "groups" / key


async def test_a_group_counts_its_own_records(nodes: Nodes) -> None:
    await create(nodes, "orders")
    await create(nodes, "bills")
    assert [await append(nodes, group, b"x") for group in ("orders", "bills", "orders", DEFAULT_GROUP)] == [0, 0, 1, 0]


async def test_a_group_of_some_nodes_is_not_here_on_the_others(nodes: Nodes) -> None:
    await create(nodes, "pair", "n0", "n1")
    assert await append(nodes, "pair", b"x") == 0
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await nodes["n2"].append_here(b"x", group="pair")
    assert refusal_in(failure.value).reason == "NOT_HERE"


async def test_bad_requests_are_refused_in_one_sentence_each(nodes: Nodes) -> None:
    for name in ("", "a b", "a.b", "x" * 65, "ä"):
        refusal = await refused(nodes, "CreateGroup", admin_pb2.CreateGroupRequest(name=name))
        assert refusal.reason == "UNEXPECTED_ARGUMENT"
    for name in (META_GROUP, DEFAULT_GROUP):
        assert (await refused(nodes, "CreateGroup", admin_pb2.CreateGroupRequest(name=name))).reason == "GROUP_EXISTS"
        assert (await refused(nodes, "DeleteGroup", admin_pb2.DeleteGroupRequest(name=name))).reason == "UNSUPPORTED"
    strangers = admin_pb2.CreateGroupRequest(name="strangers", members=["n0", "n9"])
    assert (await refused(nodes, "CreateGroup", strangers)).reason == "UNKNOWN_MEMBER"
    twice = admin_pb2.CreateGroupRequest(name="twice", members=["n0", "n0"])
    assert (await refused(nodes, "CreateGroup", twice)).reason == "UNEXPECTED_ARGUMENT"
    assert (await refused(nodes, "DeleteGroup", admin_pb2.DeleteGroupRequest(name="none"))).reason == "UNKNOWN_GROUP"


async def test_the_directory_takes_no_records_of_users(nodes: Nodes) -> None:
    for node_id in nodes.ids:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await nodes[node_id].append(b"x", group=META_GROUP)
        assert refusal_in(failure.value).reason == "UNSUPPORTED"


async def test_groups_outlive_the_loss_of_every_leader_at_once(nodes: Nodes) -> None:
    await create(nodes, "lasting")
    before = await append(nodes, "lasting", b"before")
    nodes.cluster.kill_all()
    await eventually(lambda: _none_runs(nodes), "all are dead")
    await nodes.restart(*nodes.ids)
    assert await append(nodes, "lasting", b"after") == before + 1


async def _none_runs(nodes: Nodes) -> bool:
    return not nodes.running


async def test_a_removed_group_goes_everywhere_also_from_a_node_that_was_down(nodes: Nodes) -> None:
    group = await create(nodes, "gone")
    await append(nodes, "gone", b"x")
    key = f"gone.{group.id}"
    await eventually(lambda: _has(nodes, key, nodes.ids), "every node has it")
    await nodes.terminate("n2")
    await delete(nodes, "gone")
    await eventually(lambda: _lacks(nodes, key, ["n0", "n1"]), "it is removed from those that run")
    assert directory_of(nodes, "n2", key).exists()
    await nodes.restart("n2")
    await eventually(lambda: _lacks(nodes, key, ["n2"]), "it is removed from the one that comes back")
    again = await create(nodes, "gone")
    assert again.id > group.id
    assert await append(nodes, "gone", b"of another group") == 0


async def test_a_group_without_a_quorum_is_removed_by_force_alone(nodes: Nodes) -> None:
    group = await create(nodes, "stuck", "n1", "n2")
    await append(nodes, "stuck", b"x")
    key = f"stuck.{group.id}"
    await nodes.terminate("n2")
    leader_id = await leader_of(nodes, META_GROUP)
    with pytest.raises(grpc.aio.AioRpcError, match="is being deleted, as soon as a majority of its voters") as failure:
        await nodes[leader_id].admin.DeleteGroup(admin_pb2.DeleteGroupRequest(name="stuck"), timeout=10)
    assert refusal_in(failure.value).reason == "LEADER_NOT_READY"
    assert (await refused(nodes, "CreateGroup", admin_pb2.CreateGroupRequest(name="stuck"))).reason == "GROUP_EXISTS"
    await delete(nodes, "stuck", force=True)
    await eventually(lambda: _lacks(nodes, key, ["n1"]), "it is removed from the one that runs")
    await nodes.restart("n2")
    await eventually(lambda: _lacks(nodes, key, ["n2"]), "it is removed from the one that comes back")


async def test_only_a_confirmed_leader_of_the_directory_says_that_there_is_no_group(nodes: Nodes) -> None:
    leader_id = await leader_of(nodes, META_GROUP)
    assert {each: await refusal_of_none(nodes, each) for each in nodes.running} == {
        each: "UNKNOWN_GROUP" if each == leader_id else "NOT_HERE" for each in nodes.running
    }
    others = [each for each in nodes.ids if each != leader_id]
    for each in others:
        nodes.signal(each, signal.SIGSTOP)
    try:
        assert await refusal_of_none(nodes, leader_id) == "NOT_HERE"
    finally:
        for each in others:
            nodes.signal(each, signal.SIGCONT)


async def refusal_of_none(nodes: Nodes, node_id: str) -> str:
    """What the node itself says of a group that there is not."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await nodes[node_id].append_here(b"x", group="none")
    return refusal_in(failure.value).reason


async def leader_of(nodes: Nodes, group: str) -> str:
    leaders: list[str] = []

    async def is_led() -> bool:
        statuses = [await nodes[each].admin.Status(admin_pb2.StatusRequest(group=group)) for each in nodes.running]
        leaders[:] = [each.id for each in statuses if each.role == "leader"]
        return len(leaders) == 1

    await eventually(is_led, f"{group} has a leader")
    return leaders[0]


async def _has(nodes: Nodes, key: str, ids: list[str]) -> bool:
    return all(directory_of(nodes, node_id, key).exists() for node_id in ids)


async def _lacks(nodes: Nodes, key: str, ids: list[str]) -> bool:
    return not any(directory_of(nodes, node_id, key).exists() for node_id in ids)
