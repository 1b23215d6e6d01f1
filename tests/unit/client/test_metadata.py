"""A client's knowledge of where the group is follows the group's members."""

from __future__ import annotations

import pytest

from dledger import client
from dledger.client.metadata import AddressBook, ClusterBook, MemberInfo, Metadata
from dledger.common.errors import OutcomeUnknown, PeerRefused, UnknownMember
from dledger.common.types import Consistency
from tests.unit.client.fake_server import FakeCluster


def told(leader: str | None, term: int, *addresses: str) -> Metadata:
    """Members a, b, … at these addresses."""
    ids = "abcdef"
    members = tuple(MemberInfo(ids[i], address, f"peer{i}", "", voter=True) for i, address in enumerate(addresses))
    return Metadata("default", "c", term, leader, members)


def test_members_are_asked_before_the_endpoints_given() -> None:
    book = AddressBook(ClusterBook(["x:1", "m:1"]), "default")
    assert book.addresses == ["x:1", "m:1"]
    book.learn(told("a", 1, "m:1", "m:2"), "m:1")
    assert book.addresses == ["m:1", "m:2", "x:1"]


def test_only_the_leader_strikes_out_a_member() -> None:
    book = AddressBook(ClusterBook(["x:1"]), "default")
    book.learn(told("a", 1, "m:1", "m:2"), "m:1")
    book.learn(told("a", 1, "m:1"), "m:9")
    assert book.addresses == ["m:1", "m:2", "x:1"]
    book.learn(told("a", 1, "m:1"), "m:1")
    assert book.addresses == ["m:1", "x:1"]


def test_what_an_earlier_term_says_is_no_news() -> None:
    book = AddressBook(ClusterBook(["x:1"]), "default")
    book.learn(told("a", 2, "m:1", "m:2"), "m:1")
    book.learn(told("a", 1, "m:3"), "m:3")
    assert book.addresses == ["m:1", "m:2", "x:1"]
    assert book.metadata is not None
    assert book.metadata.term == 2


def test_an_address_that_a_node_does_not_know_is_filled_in() -> None:
    book = AddressBook(ClusterBook(["x:1"]), "default")
    book.learn(told("a", 1, "m:1", "m:2"), "m:1")
    assert book.learn(told("a", 2, "m:1", ""), "m:1").address_of("b") == "m:2"
    assert book.addresses == ["m:1", "m:2", "x:1"]


def test_a_node_of_another_cluster_is_refused() -> None:
    book = AddressBook(ClusterBook(["x:1"]), "default")
    book.learn(told("a", 1, "m:1"), "m:1")
    with pytest.raises(PeerRefused, match="cluster other"):
        book.learn(told("a", 9, "m:2")._replace(cluster_id="other"), "m:2")
    assert book.addresses == ["m:1", "x:1"]


def test_a_node_that_does_not_know_its_cluster_yet_says_nothing_against_it() -> None:
    book = AddressBook(ClusterBook(["x:1"]), "default")
    book.learn(told(None, 0)._replace(cluster_id=""), "m:1")
    book.learn(told("a", 1, "m:1"), "m:1")
    book.learn(told(None, 0)._replace(cluster_id=""), "m:2")


@pytest.fixture
async def five() -> FakeCluster:
    cluster = FakeCluster()
    for _ in range(5):
        await cluster.add_node()
    cluster.lead(cluster.nodes[0])
    return cluster


async def stop(cluster: FakeCluster) -> None:
    for node in cluster.nodes:
        await node.stop()


async def test_a_client_goes_on_when_every_node_it_knew_is_replaced(five: FakeCluster) -> None:
    """Each is gone for good before the next; whoever leads is replaced too."""
    given = five.endpoints
    async with client.connect(given, timeout_ms=5_000) as log:
        for number, old in enumerate(list(five.nodes)):
            assert (await log.append(b"%d" % number)).index == number
            five.lead(old)
            await five.replace(old)
        assert not set(given.split(",")) & set(five.endpoints.split(","))
        for number, leader in enumerate(list(five.nodes), start=5):
            five.lead(leader)
            assert (await log.append(b"%d" % number)).index == number
            assert (await log.get(number)).value == b"%d" % number
            assert (await log.admin.promote(leader.id)).position == 0
            assert {node.id for node in (await log.status()).nodes} == set(five.members)
    await stop(five)


async def test_a_client_that_is_idle_hears_of_new_members(five: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the leader are replaced, then the leader dies: nobody is left of those the client asked last."""
    monkeypatch.setattr("dledger.client.connections.REFRESH_INTERVAL_S", 0.02)
    leader = five.nodes[0]
    async with client.connect(five.endpoints, timeout_ms=5_000) as log:
        await log.append(b"0")
        for old in five.nodes[1:]:
            await five.replace(old)
        calls = leader.metadata_calls
        while leader.metadata_calls < calls + 2:
            await log.get(0)
        await five.replace(leader)
        assert (await log.append(b"1")).index == 1
    await stop(five)


async def test_the_next_leader_that_the_last_one_named_tells_who_is_there(five: FakeCluster) -> None:
    async with client.connect(five.nodes[0].address, timeout_ms=5_000) as log:
        await log.append(b"0")
        first, *others = five.nodes
        for old in others:
            await five.replace(old)
        second = five.nodes[1]
        five.lead(second)
        await log.append(b"1")
        while not second.metadata_calls:
            await log.get(0)
        await five.replace(first)
        await five.replace(second)
        assert (await log.append(b"2")).index == 2
    await stop(five)


async def test_a_removed_node_does_not_lead_a_client_astray(five: FakeCluster) -> None:
    """It still runs, and knows the members as they were."""
    removed = five.nodes[4]
    async with client.connect(removed.address, timeout_ms=5_000) as log:
        await log.append(b"0")
        removed.remembers = dict(five.members)
        removed.believes = (five.term, five.nodes[0])
        del five.members[removed.id]
        for old in five.nodes[:4]:
            await five.replace(old)
            await log.append(b"x")
            assert removed.id not in {node.id for node in (await log.status()).nodes}
    await stop(five)


async def test_what_a_removed_node_says_does_not_count_beside_a_member(five: FakeCluster) -> None:
    """Its leader is gone, and so are all others that it knows."""
    removed, member = five.nodes[4], await five.add_node()
    removed.remembers = dict(five.members)
    removed.believes = (five.term, five.nodes[0])
    five.lead(member)
    del five.members[removed.id]
    for old in five.nodes[:4]:
        await five.replace(old)
    async with client.connect([removed.address, member.address], timeout_ms=5_000) as log:
        assert {each.id for each in (await log.metadata()).members} == set(five.members)
    await stop(five)


async def test_nothing_is_appended_to_another_cluster_that_took_the_place_of_the_first(five: FakeCluster) -> None:
    async with client.connect(five.endpoints, timeout_ms=1_000) as log:
        await log.append(b"0")
        five.cluster_id = "founded anew"
        five.lead(five.nodes[1])
        with pytest.raises(OutcomeUnknown, match="founded anew"):
            await log.append(b"1")
        assert len(five.batches) == 1
    await stop(five)


async def test_who_follows_a_node_that_is_no_member_any_more_is_told(
    five: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.client.range_reader.SILENCE_S", 0.02)
    monkeypatch.setattr("dledger.client.connections.REFRESH_INTERVAL_S", 0.02)
    removed = five.nodes[4]
    async with client.connect(five.endpoints, timeout_ms=5_000) as log:
        await log.append(b"0")
        entries = log.read(0, follow=True, consistency=Consistency.COMMITTED, node=removed.id)
        assert (await anext(entries)).value == b"0"
        del five.members[removed.id]
        with pytest.raises(UnknownMember, match="gets nothing behind record 0"):
            await anext(entries)
    await stop(five)
