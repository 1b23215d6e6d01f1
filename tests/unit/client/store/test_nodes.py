"""Which node is asked: the leader if somebody knows it, else any; never again at once one that failed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from dledger.client.client_options import parse_endpoints
from dledger.client.connections import Connections
from dledger.client.leader_locator import LeaderLocator
from dledger.client.store.nodes import StoreNodes
from dledger.common.errors import Code, DLedgerError, Unavailable, error
from dledger.common.types import META_GROUP
from tests.unit.client.fake_server import FakeCluster

AWAY = Unavailable("it is gone")


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    """Three nodes, of which the first leads."""
    fake = FakeCluster()
    for _ in range(3):
        await fake.add_node()
    fake.lead(fake.nodes[0])
    yield fake
    for node in fake.nodes:
        await node.stop()


@pytest.fixture
async def connections(fake: FakeCluster) -> AsyncIterator[Connections]:
    connections = Connections(parse_endpoints(fake.endpoints))
    yield connections
    await connections.close()


@pytest.fixture
async def nodes(connections: Connections) -> AsyncIterator[StoreNodes]:
    leaders = LeaderLocator(connections, META_GROUP)
    yield StoreNodes(connections, leaders, random.Random(1))
    await leaders.close()


async def test_the_leader_is_asked(nodes: StoreNodes, fake: FakeCluster) -> None:
    assert (await nodes.find()).address == fake.nodes[0].address
    for leader in fake.nodes[1:]:
        before = (await nodes.find()).address
        fake.lead(leader)
        nodes.lost(before, error(Code.NOT_LEADER, "no more", leader_address=leader.address))
        assert (await nodes.find()).address == leader.address


async def test_a_leader_that_failed_is_passed_over_for_a_moment(nodes: StoreNodes) -> None:
    first = (await nodes.find()).address
    nodes.lost(first, AWAY)
    assert (await nodes.find()).address != first


async def test_the_node_stays_the_same_while_it_serves(nodes: StoreNodes) -> None:
    assert len({(await nodes.find()).address for _ in range(10)}) == 1


async def test_without_a_leader_any_node_is_asked(nodes: StoreNodes, fake: FakeCluster) -> None:
    fake.leader = None
    asked = set()
    for _ in fake.nodes:
        asked.add((await nodes.find()).address)
        nodes.lost((await nodes.find()).address, AWAY)
    assert asked == {node.address for node in fake.nodes}


async def test_when_all_have_failed_they_are_asked_again(nodes: StoreNodes, fake: FakeCluster) -> None:
    for _ in range(3 * len(fake.nodes)):
        nodes.lost((await nodes.find()).address, AWAY)


async def test_another_leader_ends_the_stay_at_a_silent_node(nodes: StoreNodes, fake: FakeCluster) -> None:
    address = (await nodes.find()).address
    assert not await nodes.moved_on(address)
    fake.term += 1
    fake.lead(fake.nodes[1])
    assert await nodes.moved_on(address)


async def test_a_closed_client_asks_nobody(nodes: StoreNodes, connections: Connections) -> None:
    await connections.close()
    with pytest.raises(DLedgerError, match="client was closed"):
        await nodes.find()
