"""A client of a whole cluster: many groups over one set of connections, and the directory of groups."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest

from dledger import client
from dledger.client.connections import Connections
from dledger.client.leader_locator import LeaderLocator
from dledger.common.errors import (
    ChangeRefused,
    Code,
    DLedgerError,
    GroupExists,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
    UnknownGroup,
    UnknownMember,
    Unsupported,
)
from dledger.common.types import Consistency
from dledger.v1 import admin_pb2
from tests.unit.client.fake_server import FakeCluster
from tests.unit.client.test_closing import CALLS, Call

MANY = 200


@pytest.fixture
async def whole(cluster: FakeCluster) -> AsyncIterator[client.Cluster]:
    async with client.connect_cluster(cluster.endpoints, timeout_ms=5_000, rng=random.Random(7)) as whole:
        yield whole


async def heard(cluster: FakeCluster, enough: Callable[[], bool]) -> None:
    """Returns once the first node was asked so often for what it knows of groups."""
    async with asyncio.timeout(30), cluster.nodes[0].received:
        await cluster.nodes[0].received.wait_for(enough)


async def test_a_group_is_made_listed_described_used_and_deleted(cluster: FakeCluster, whole: client.Cluster) -> None:
    made = await whole.groups.create("orders", ["n1", "n2"])
    assert (made.name, made.id, [each.id for each in made.founders]) == ("orders", 1, ["n1", "n2"])
    assert await whole.groups.list() == [made]
    assert await whole.groups.describe("orders") == made
    assert (await whole.log("orders").append(b"x")).index == 0
    assert (cluster.nodes[1].appended_to, cluster.nodes[0].appended_to) == ({"orders"}, set())
    assert (await whole.log("orders").get(0)).value == b"x"
    assert {node.id for node in (await whole.log("orders").status()).nodes} == {"n1", "n2"}
    assert await whole.groups.delete("orders") == made
    assert await whole.groups.list() == []


async def test_a_dry_run_makes_and_deletes_nothing(cluster: FakeCluster, whole: client.Cluster) -> None:
    assert (await whole.groups.create("orders", dry_run=True)).name == "orders"
    assert not cluster.groups
    await whole.groups.create("orders")
    assert (await whole.groups.delete("orders", dry_run=True)).name == "orders"
    assert list(cluster.groups) == ["orders"]


async def test_what_is_refused_of_groups(whole: client.Cluster) -> None:
    await whole.groups.create("orders")
    with pytest.raises(GroupExists) as exists:
        await whole.groups.create("orders")
    assert (exists.value.code, exists.value.exit_code) == (Code.GROUP_EXISTS, 5)
    with pytest.raises(UnknownGroup):
        await whole.groups.describe("other")
    with pytest.raises(UnknownGroup):
        await whole.groups.delete("other")
    with pytest.raises(UnknownMember):
        await whole.groups.create("other", ["n9"])
    with pytest.raises(UnknownGroup):
        await whole.log("other").append(b"x")


async def test_another_group_of_the_same_name_is_not_deleted(cluster: FakeCluster, whole: client.Cluster) -> None:
    first = await whole.groups.create("orders")
    await whole.groups.delete("orders", id=first.id)
    await whole.groups.create("orders")
    with pytest.raises(ChangeRefused):
        await whole.groups.delete("orders", id=first.id)
    assert list(cluster.groups) == ["orders"]


async def test_the_directory_is_not_in_itself(whole: client.Cluster) -> None:
    with pytest.raises(Unsupported, match="holds the directory and is not in it"):
        await whole.groups.describe("meta")


@pytest.mark.parametrize("name", ["", "a b", "é", "a/b", ".", "x" * 65, "a\n"])
async def test_a_bad_name_is_refused_before_anything_is_sent(cluster: FakeCluster, name: str) -> None:
    async with client.connect_cluster(cluster.endpoints) as whole:
        with pytest.raises(InvalidRequest, match="is not a group name: use 1 to 64 letters, digits, '-' and '_'"):
            await whole.groups.create(name)
        with pytest.raises(InvalidRequest, match="is not a group name"):
            whole.log(name)
        with pytest.raises(InvalidRequest, match="give a list of strs"):
            await whole.groups.create("orders", "n0,n1")
    assert not cluster.was_asked("GetMetadata")


async def test_a_group_made_by_an_attempt_whose_answer_was_lost_is_not_said_to_be_anothers(
    cluster: FakeCluster, whole: client.Cluster
) -> None:
    cluster.faults.drop_admin_answers = 1
    with pytest.raises(OutcomeUnknown, match="no answer says what became of it"):
        await whole.groups.create("orders")
    assert list(cluster.groups) == ["orders"]


async def test_a_next_leader_that_knows_the_group_does_not_settle_who_made_it(cluster: FakeCluster) -> None:
    cluster.faults.drop_admin_answers = 1

    def on_wait(_: DLedgerError) -> None:
        cluster.lead(cluster.nodes[1])

    async with client.connect_cluster(cluster.endpoints, on_wait=on_wait) as whole:
        with pytest.raises(OutcomeUnknown, match="may have made it: describe the group"):
            await whole.groups.create("orders")


async def test_a_deletion_whose_answer_was_lost_is_made_again_of_that_group_alone(
    cluster: FakeCluster, whole: client.Cluster
) -> None:
    first = await whole.groups.create("orders")
    cluster.faults.drop_admin_answers = 1
    cluster.faults.on_dropped = lambda: cluster.groups.setdefault("orders", admin_pb2.GroupInfo(name="orders", id=99))
    assert (await whole.groups.delete("orders")).id == first.id
    assert [each.id for each in cluster.groups.values()] == [99], "the next group of that name stays"


async def test_the_directory_is_asked_of_whoever_leads_it(cluster: FakeCluster, whole: client.Cluster) -> None:
    await whole.groups.create("a")
    cluster.lead(cluster.nodes[2])
    await whole.groups.create("b")
    assert [each.name for each in await whole.groups.list()] == ["a", "b"]


# Finding a group -------------------------------------------------------------------------------------------------


async def test_a_node_without_the_group_tells_where_to_look(cluster: FakeCluster) -> None:
    """The only endpoint has no replica of it."""
    async with client.connect_cluster(cluster.endpoints) as whole:
        await whole.groups.create("orders", ["n2"])
    for consistency in Consistency:
        async with client.connect(cluster.nodes[0].address, group="orders", timeout_ms=5_000) as log:
            assert await log.bounds(consistency) == (0, -1)
    async with client.connect(cluster.nodes[0].address, group="orders", timeout_ms=5_000) as log:
        assert (await log.append(b"x")).index == 0


async def test_a_group_whose_nodes_are_all_away_is_not_said_to_be_unknown(cluster: FakeCluster) -> None:
    async with client.connect_cluster(cluster.endpoints, timeout_ms=300) as whole:
        await whole.groups.create("orders", ["n2"])
        await cluster.nodes[2].stop()
        with pytest.raises(Unavailable, match="no node that answers has a replica of the group 'orders'") as refusal:
            await whole.log("orders").bounds()
        assert refusal.value.code is Code.NOT_HERE


async def test_a_group_that_was_deleted_and_made_again_elsewhere_is_found(
    cluster: FakeCluster, whole: client.Cluster
) -> None:
    """Its terms begin anew: they are lower than those known of the first."""
    await whole.groups.create("orders", ["n0", "n1"])
    log = whole.log("orders")
    assert await log.bounds() == (0, -1)
    await whole.groups.delete("orders")
    with pytest.raises(UnknownGroup):
        await log.metadata()
    cluster.term = 0
    await whole.groups.create("orders", ["n2"])
    assert {each.id for each in (await log.metadata()).members} == {"n2"}
    assert await log.bounds() == (0, -1)


async def test_where_nodes_are_is_known_to_all_groups(cluster: FakeCluster) -> None:
    """The endpoint given is gone when the second group is first asked for."""
    async with client.connect_cluster(cluster.nodes[0].address, timeout_ms=5_000) as whole:
        assert await whole.log().bounds() == (0, -1)
        await whole.groups.create("orders", ["n2"])
        cluster.lead(cluster.nodes[1])
        await cluster.nodes[0].stop()
        assert await whole.log("orders").bounds() == (0, -1)


async def test_a_hundred_groups_and_more_take_one_task_to_stay_current(
    cluster: FakeCluster, whole: client.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.client.connections.REFRESH_INTERVAL_S", 0.5)
    names = [f"g{number}" for number in range(MANY)]
    for name in names:
        await whole.groups.create(name)
    before = asyncio.all_tasks()
    await asyncio.gather(*(whole.log(name).metadata() for name in names))
    tasks = [task.get_name() for task in asyncio.all_tasks() - before if task.get_name().startswith("dledger")]
    assert [name for name in tasks if not name.startswith("dledger-ask")] in ([], ["dledger-members"])
    assert len(whole._connections.channels._endpoints) == len(cluster.nodes)
    told = {name: cluster.nodes[0].groups_told[name] for name in names}
    await heard(cluster, lambda: all(cluster.nodes[0].groups_told[name] > told[name] for name in names))


async def test_a_log_that_was_closed_is_not_asked_for_any_more(
    cluster: FakeCluster, whole: client.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.client.connections.REFRESH_INTERVAL_S", 0.02)
    await whole.groups.create("a")
    await whole.groups.create("b")
    async with whole.log("a") as log:
        await log.bounds()
    await whole.log("b").bounds()
    told = [cluster.nodes[0].groups_told[name] for name in "ab"]
    await heard(cluster, lambda: cluster.nodes[0].groups_told["b"] >= told[1] + 5)
    assert cluster.nodes[0].groups_told["a"] == told[0]


async def test_a_redirected_group_does_not_wait_for_its_turn(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.client.connections.REFRESH_INTERVAL_S", 3600)
    connections = Connections([cluster.nodes[0].address])
    leaders = LeaderLocator(connections, "default")
    await leaders.find()
    calls = cluster.nodes[0].metadata_calls
    connections.refresher.hurry(leaders)
    await heard(cluster, lambda: cluster.nodes[0].metadata_calls > calls)
    await leaders.close()
    await connections.close()


# Closing ---------------------------------------------------------------------------------------------------------


async def test_a_log_is_the_same_until_it_is_closed(whole: client.Cluster) -> None:
    log = whole.log()
    assert whole.log() is log
    async with log, whole.log() as same:
        assert same is log
        async with whole.log():
            pass
        assert (await log.append(b"x")).index == 0
    with pytest.raises(Unavailable, match="the client was closed"):
        await log.bounds()
    with pytest.raises(Unavailable, match="the client was closed"):
        async with log:
            pass
    other = whole.log()
    assert other is not log
    assert (await other.append(b"y")).index == 1


async def test_closing_one_log_leaves_the_others_open(whole: client.Cluster) -> None:
    await whole.groups.create("orders")
    following = asyncio.ensure_future(anext(whole.log("orders").read(follow=True)))
    async with whole.log("orders") as log:
        await log.bounds()
    with pytest.raises(Unavailable, match="the client was closed"):
        await following
    assert (await whole.log().append(b"x")).index == 0


async def test_the_cluster_waits_for_what_its_logs_have_not_been_answered(cluster: FakeCluster) -> None:
    async with client.connect_cluster(cluster.endpoints, timeout_ms=5_000) as whole:
        acks = [whole.log().enqueue(b"x"), whole.log("meta").enqueue(b"y")]
    assert {(await ack).index for ack in acks} == {0, 1}
    for use in (whole.log, lambda: whole.groups):
        with pytest.raises(Unavailable, match="the client was closed"):
            use()


@pytest.mark.parametrize(("method", "call"), CALLS)
async def test_whoever_waits_in_a_call_when_the_cluster_is_closed_is_told(
    cluster: FakeCluster, method: str, call: Call
) -> None:
    await cluster.fill([b"x"])
    cluster.faults.silent = frozenset({method})
    async with client.connect_cluster(cluster.endpoints, timeout_ms=60_000) as whole:
        waiting = asyncio.ensure_future(call(whole.log()))
        await cluster.heard(method)
    with pytest.raises(Unavailable) as refusal:
        await waiting
    assert refusal.value.code is Code.SHUTTING_DOWN


async def test_a_client_that_is_not_open_says_so(cluster: FakeCluster) -> None:
    whole = client.connect_cluster(cluster.endpoints)
    with pytest.raises(Unavailable, match=r"async with dledger\.connect_cluster"):
        whole.log()


# Blocking --------------------------------------------------------------------------------------------------------


async def test_the_blocking_cluster_does_the_same(cluster: FakeCluster) -> None:
    def use() -> None:
        with client.connect_cluster_blocking(cluster.endpoints, timeout_ms=5_000) as whole:
            made = whole.groups.create("orders", ["n1"])
            assert whole.groups.list() == [made] == [whole.groups.describe("orders")]
            assert whole.log("orders").append(b"x").index == 0
            with whole.log("orders") as log:
                assert [entry.value for entry in log.read()] == [b"x"]
            kept = whole.log()
            assert kept.append(b"y").index == 1
            assert whole.groups.delete("orders") == made
        kept.close()
        with pytest.raises(Unavailable, match=r"with dledger\.connect_cluster_blocking"):
            kept.append(b"z")

    await asyncio.to_thread(use)
