"""How the leader is found, and how soon a wrong one is given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from dledger.client.connections import Connections
from dledger.client.leader_locator import LeaderLocator
from dledger.common.errors import Code, NotLeader, PeerRefused, Unavailable, UnknownGroup, error
from dledger.common.types import Consistency
from tests.unit.client.fake_server import FakeCluster

SILENT = "192.0.2.1:9"
"""Nothing answers there, not even a refusal (RFC 5737)."""


Locate = Callable[..., LeaderLocator]


@pytest.fixture
async def locate() -> AsyncIterator[Locate]:
    """``locate(addresses)``: a locator of the group ``default``, with connections of its own."""
    opened: list[Connections] = []

    def locate(endpoints: list[str], group: str = "default") -> LeaderLocator:
        opened.append(Connections(endpoints))
        return LeaderLocator(opened[-1], group)

    yield locate
    for connections in opened:
        await connections.close()


async def test_one_endpoint_is_enough_to_learn_of_the_others(cluster: FakeCluster, locate: Locate) -> None:
    leaders = locate([cluster.nodes[2].address])
    assert (await leaders.find()).address == cluster.nodes[0].address
    assert set(leaders.addresses) == {node.address for node in cluster.nodes}


async def test_an_endpoint_that_does_not_even_refuse_costs_a_moment_only(cluster: FakeCluster, locate: Locate) -> None:
    leaders = locate([SILENT, cluster.nodes[1].address])
    async with asyncio.timeout(0.9):
        assert (await leaders.find()).address == cluster.nodes[0].address


async def test_all_who_ask_at_once_share_one_search(cluster: FakeCluster, locate: Locate) -> None:
    leaders = locate([cluster.nodes[1].address])
    found = await asyncio.gather(*(leaders.find() for _ in range(50)))
    assert len({id(endpoint) for endpoint in found}) == 1
    assert cluster.nodes[1].metadata_calls == 1


@pytest.mark.parametrize("by", ["id", "address"])
async def test_a_node_that_is_none_of_the_endpoints_is_found_by_its_id_and_by_its_address(
    cluster: FakeCluster, locate: Locate, by: str
) -> None:
    leaders = locate([cluster.nodes[0].address])
    other = cluster.nodes[2]
    assert (await leaders.route(getattr(other, by), Consistency.COMMITTED)).address == other.address


async def test_whom_a_refusal_names_as_the_leader_is_asked_first(cluster: FakeCluster, locate: Locate) -> None:
    leaders = locate([cluster.nodes[1].address])
    await leaders.find()
    cluster.lead(cluster.nodes[2])
    named = cluster.nodes[2].address
    leaders.lost(cluster.nodes[0].address, NotLeader("moved", metadata={"leader_address": named}))
    assert (await leaders.find()).address == named
    assert [node.metadata_calls for node in cluster.nodes[:2]] == [0, 1], "the others were not asked again"


async def test_a_refusal_of_another_than_the_leader_changes_nothing(cluster: FakeCluster, locate: Locate) -> None:
    leaders = locate([cluster.nodes[1].address])
    await leaders.find()
    leaders.lost(cluster.nodes[2].address, error(Code.NETWORK_ERROR, "gone"))
    assert (await leaders.find()).address == cluster.nodes[0].address
    assert cluster.nodes[1].metadata_calls == 1


async def test_a_leader_lost_is_believed_again_only_if_nobody_names_another(
    cluster: FakeCluster, locate: Locate
) -> None:
    leaders = locate([node.address for node in cluster.nodes])
    lost = (await leaders.find()).address
    leaders.lost(lost, error(Code.NETWORK_ERROR, "a broken stream"))
    assert (await leaders.find()).address == lost
    cluster.nodes[1].believes = (cluster.term, cluster.nodes[0])
    cluster.lead(cluster.nodes[2])
    leaders.lost(lost, error(Code.NETWORK_ERROR, "gone"))
    assert (await leaders.find()).address == cluster.nodes[2].address


async def test_whether_another_leads_is_told_by_the_others(cluster: FakeCluster, locate: Locate) -> None:
    leaders = locate([node.address for node in cluster.nodes])
    address = (await leaders.find()).address
    assert not await leaders.moved_on(address)
    assert (await leaders.find()).address == address
    cluster.lead(cluster.nodes[1])
    assert await leaders.moved_on(address)


async def test_why_nobody_leads_is_said(cluster: FakeCluster, locate: Locate) -> None:
    cluster.lead(None)
    with pytest.raises(Unavailable) as refusal:
        await locate([cluster.nodes[0].address]).find()
    assert refusal.value.code is Code.LEADER_NOT_READY
    with pytest.raises(Unavailable, match="no node answers") as refusal:
        await locate(["127.0.0.1:1"]).find()
    assert refusal.value.code is Code.NETWORK_ERROR
    with pytest.raises(UnknownGroup):
        await locate([cluster.nodes[0].address], "nowhere").find()


async def test_a_reason_that_several_nodes_share_is_said_once(locate: Locate) -> None:
    with pytest.raises(Unavailable) as refusal:
        await locate(["127.0.0.1:2", "127.0.0.1:1", "nowhere.invalid:1"]).find()
    assert "127.0.0.1:2, 127.0.0.1:1 cannot be reached: connection refused; nowhere.invalid:1 cannot" in str(
        refusal.value
    )


async def test_a_leader_that_says_that_it_is_of_another_cluster_is_none_any_more(
    cluster: FakeCluster, locate: Locate
) -> None:
    leaders = locate([cluster.nodes[0].address])
    address = (await leaders.find()).address
    cluster.cluster_id = "another"
    with pytest.raises(PeerRefused):
        await leaders.ask(address)
    with pytest.raises(PeerRefused):
        await leaders.find()


async def test_a_leader_whose_address_nobody_knows_is_waited_for(cluster: FakeCluster, locate: Locate) -> None:
    leaders = locate([cluster.nodes[1].address])
    unknown = cluster.nodes.pop(0)
    with pytest.raises(Unavailable, match="no leader is known"):
        await leaders.find()
    await unknown.stop()


async def test_a_committed_read_goes_to_anyone_who_answers(cluster: FakeCluster, locate: Locate) -> None:
    cluster.lead(None)
    leaders = locate(["127.0.0.1:1", cluster.nodes[2].address])
    assert (await leaders.route(None, Consistency.COMMITTED)).address == cluster.nodes[2].address
