"""A client talks to one cluster: the one it was told, or the one that all of its endpoints are of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from dledger import client
from dledger.client.metadata import AddressBook, ClusterBook, MemberInfo, Metadata
from dledger.common.errors import DeadlineExceeded, PeerRefused, Unavailable
from dledger.common.types import Consistency, Member, NodeId
from tests.unit.client.fake_server import FakeCluster, FakeNode


async def founded(cluster_id: str, count: int = 2) -> FakeCluster:
    cluster = FakeCluster()
    cluster.cluster_id = cluster_id
    for _ in range(count):
        await cluster.add_node()
    cluster.lead(cluster.nodes[0])
    return cluster


@pytest.fixture
async def red() -> AsyncIterator[FakeCluster]:
    cluster = await founded("red")
    yield cluster
    for node in cluster.nodes:
        await node.stop()


@pytest.fixture
async def blue() -> AsyncIterator[FakeCluster]:
    cluster = await founded("blue")
    yield cluster
    for node in cluster.nodes:
        await node.stop()


def found_another(node: FakeNode) -> FakeCluster:
    """It is emptied, and founds a cluster of its own at its address."""
    green = FakeCluster()
    green.cluster_id, green.nodes = "green", [node]
    green.members = {node.id: Member(NodeId(node.id), f"{node.address}:peer")}
    node.cluster = green
    green.lead(node)
    return green


async def append(log: client.Log) -> object:
    return await log.append(b"x")


async def get(log: client.Log) -> object:
    return await log.get(0, Consistency.COMMITTED)


async def get_linearizable(log: client.Log) -> object:
    return await log.get(0)


async def read(log: client.Log) -> object:
    return await anext(log.read())


async def open_producer(log: client.Log) -> object:
    return await log.producer("job").__aenter__()


CALLS: list[Callable[[client.Log], Coroutine[Any, Any, object]]] = [
    append,
    get,
    read,
    open_producer,
    lambda log: log.bounds(),
    lambda log: log.segments(),
    lambda log: log.metadata(),
    lambda log: log.status(),
    lambda log: log.admin.promote("n1"),
]


@pytest.mark.parametrize("call", CALLS)
async def test_endpoints_of_two_clusters_are_refused(
    red: FakeCluster, blue: FakeCluster, call: Callable[[client.Log], Coroutine[Any, Any, object]]
) -> None:
    async with client.connect(f"{red.endpoints},{blue.endpoints}") as log:
        with pytest.raises(PeerRefused, match="belongs to cluster") as refusal:
            await call(log)
        assert "red" in str(refusal.value)
        assert "blue" in str(refusal.value)
    assert (red.records(), blue.records()) == ([], [])


@pytest.mark.parametrize("cluster_id", ["red", "blue"])
async def test_a_client_that_is_told_its_cluster_talks_to_that_one_alone(
    red: FakeCluster, blue: FakeCluster, cluster_id: str
) -> None:
    meant, other = (red, blue) if cluster_id == "red" else (blue, red)
    async with client.connect(f"{other.endpoints},{meant.endpoints}", cluster_id=cluster_id) as log:
        await log.append(b"x")
        assert (await log.metadata()).cluster_id == cluster_id
        with pytest.raises(PeerRefused, match=f"{cluster_id} was asked for"):
            await log.get(0, Consistency.COMMITTED, node=other.nodes[1].address)
    assert (meant.records(), other.records()) == ([b"x"], [])


@pytest.mark.parametrize("call", CALLS)
async def test_a_cluster_that_no_endpoint_is_of_is_refused(
    red: FakeCluster, call: Callable[[client.Log], Coroutine[Any, Any, object]]
) -> None:
    async with client.connect(red.endpoints, cluster_id="blue") as log:
        with pytest.raises(PeerRefused, match="blue was asked for"):
            await call(log)
    assert red.records() == []


async def test_a_cluster_that_is_away_is_waited_for_beside_another_one(red: FakeCluster, blue: FakeCluster) -> None:
    for node in red.nodes:
        await node.stop()
    async with client.connect(f"{red.endpoints},{blue.endpoints}", cluster_id="red", timeout_ms=500) as log:
        with pytest.raises(Unavailable, match="no node answers"):
            await log.bounds()
        with pytest.raises(DeadlineExceeded):
            await log.append(b"x")


@pytest.mark.parametrize("cluster_id", [None, "red"])
async def test_nodes_of_a_new_cluster_say_nothing_against_it(red: FakeCluster, cluster_id: str | None) -> None:
    red.cluster_id = ""
    async with client.connect(red.endpoints, cluster_id=cluster_id) as log:
        assert (await log.metadata()).cluster_id == ""
        red.cluster_id = "red"
        assert (await log.metadata()).cluster_id == "red"
        await log.append(b"x")


async def test_a_second_cluster_that_turns_up_later_is_refused_then(red: FakeCluster, blue: FakeCluster) -> None:
    await blue.nodes[0].stop()
    async with client.connect(f"{red.nodes[0].address},{blue.nodes[0].address}", timeout_ms=5_000) as log:
        await log.append(b"x")
        await blue.nodes[0].start()
        red.lead(None)
        await red.nodes[1].stop()
        with pytest.raises(PeerRefused, match="belongs to cluster blue, the others to red"):
            await asyncio.wait_for(get_linearizable(log), timeout=3)
        red.lead(red.nodes[0])
        with pytest.raises(PeerRefused):
            await log.bounds()
    assert (red.records(), blue.records()) == ([b"x"], [])


async def append_named(log: client.Log) -> object:
    async with log.producer("job") as producer:
        return await producer.enqueue_many([b"x"])


@pytest.mark.parametrize("cluster_id", [None, "red"])
@pytest.mark.parametrize("call", [append, append_named])
async def test_a_leader_that_founded_another_cluster_is_told_of_no_append(
    red: FakeCluster, cluster_id: str | None, call: Callable[[client.Log], Coroutine[Any, Any, object]]
) -> None:
    async with client.connect(red.endpoints, cluster_id=cluster_id) as log:
        await log.bounds()
        green = found_another(red.nodes[0])
        red.lead(red.nodes[1])
        await call(log)
    assert (red.records(), green.records()) == ([b"x"], [])


@pytest.mark.parametrize("call", [append, append_named])
async def test_an_only_node_that_founded_another_cluster_is_refused(
    call: Callable[[client.Log], Coroutine[Any, Any, object]],
) -> None:
    red = await founded("red", count=1)
    async with client.connect(red.endpoints) as log:
        await log.bounds()
        green = found_another(red.nodes[0])
        with pytest.raises(PeerRefused, match="founded another"):
            await call(log)
    assert green.records() == []
    await red.nodes[0].stop()


async def test_a_producer_that_was_opened_before_its_leader_founded_another_cluster_appends_nothing_there(
    red: FakeCluster,
) -> None:
    async with client.connect(red.endpoints) as log, log.producer("job") as producer:
        green = found_another(red.nodes[0])
        red.lead(red.nodes[1])
        await producer.enqueue_many([b"x"])
        await producer.flush()
    assert (red.records(), green.records()) == ([b"x"], [])


async def test_an_append_waits_while_the_others_still_take_a_node_for_their_leader_that_founded_another_cluster(
    red: FakeCluster,
) -> None:
    async with client.connect(red.endpoints) as log:
        await log.bounds()
        green = found_another(red.nodes[0])
        waiting = log.enqueue(b"x")
        done, _ = await asyncio.wait({waiting}, timeout=0.1)
        assert not done
        red.lead(red.nodes[1])
        await waiting
    assert (red.records(), green.records()) == ([b"x"], [])


def told(cluster_id: str, *addresses: str) -> Metadata:
    members = tuple(MemberInfo(address, address, f"{address}:peer", "", voter=True) for address in addresses)
    return Metadata("default", cluster_id, 1, addresses[0], members)


def test_a_member_that_was_emptied_and_founded_another_cluster_is_refused_alone() -> None:
    book = AddressBook(ClusterBook(["a:1", "b:1"]), "default")
    book.learn(told("red", "a:1", "b:1"), "a:1")
    with pytest.raises(PeerRefused):
        book.learn(told("blue", "b:1"), "b:1")
    assert book.cluster.conflict is None


def test_a_node_that_was_one_of_ours_and_founded_another_cluster_is_refused_alone() -> None:
    book = AddressBook(ClusterBook(["a:1", "b:1"]), "default")
    book.learn(told("red", "a:1", "c:1"), "b:1")
    with pytest.raises(PeerRefused):
        book.learn(told("blue", "b:1"), "b:1")
    assert book.cluster.conflict is None
