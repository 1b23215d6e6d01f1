"""Members of groups that come and go: who opens a replica, who drops one, and what the directory says of it."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dledger.cli.main import cli
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import DEFAULT_GROUP, META_GROUP, NodeId, Position, Term
from dledger.group.leader.transfer import LeadershipTransfer
from dledger.node.groups import LogPosition
from dledger.server.embedded import NodeLog
from tests.unit.group.rot import until
from tests.unit.server.clusters import Cluster, running


async def with_member(cluster: Cluster, node_id: str) -> None:
    """A node more in the cluster, which votes in `meta`."""
    await cluster.start(node_id)
    await cluster.add(META_GROUP, node_id)
    await until(lambda: node_id in cluster.members(META_GROUP)[0])


async def test_a_new_node_becomes_a_voter_of_meta_when_it_has_caught_up(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await with_member(cluster, "n3")
        await with_member(cluster, "n4")
        assert cluster.members(META_GROUP) == (["n0", "n1", "n2", "n3", "n4"], [])
        await cluster.start("n5")
        await cluster.add(META_GROUP, "n5")
        await until(lambda: DEFAULT_GROUP in cluster.nodes["n5"].groups.names)
        assert cluster.members(META_GROUP) == (["n0", "n1", "n2", "n3", "n4"], ["n5"]), "five vote, the sixth listens"
        await cluster.remove(META_GROUP, "n4")
        await until(lambda: cluster.members(META_GROUP) == (["n0", "n1", "n2", "n3", "n5"], []))
        assert cluster.has(DEFAULT_GROUP, "n0", "n1", "n2")


async def test_a_node_is_added_while_the_leader_of_meta_dies(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.start("n3")
        await cluster.add(META_GROUP, "n3")
        leader = next(each for each, node in cluster.nodes.items() if node.directory.meta().leads)
        await cluster.kill(leader)
        await until(lambda: "n3" in cluster.members(META_GROUP)[0])


async def test_a_message_opens_a_learner_where_the_record_does_not_say_so_yet(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await with_member(cluster, "n3")
        await cluster.create("orders", "n0", "n1", "n2")
        await cluster.append("orders", b"x")
        cluster.is_told = False
        meta = next(each for each, node in cluster.nodes.items() if node.directory.meta().leads)
        await cluster.ask(lambda node: node.replica("orders").handover.transfer(other_than(meta)))
        await cluster.add("orders", "n3")
        await until(lambda: cluster.has("orders", "n0", "n1", "n2", "n3"))
        replica = cluster.replica("n3", "orders")
        assert replica is not None
        await until(lambda: replica.log.state.next_index == 1)
        assert not replica.core.is_voter
        assert not cluster.record("n3", "orders").names(NodeId("n3")), "the record lags, and takes nothing away"
        await cluster.append("orders", b"y")
        await until(lambda: replica.log.state.next_index == 2)
        cluster.is_told = True
        await until(lambda: cluster.record("n3", "orders").names(NodeId("n3")))
        assert cluster.replica("n3", "orders") is replica


def other_than(node_id: str) -> NodeId:
    return NodeId("n0" if node_id != "n0" else "n1")


async def test_a_removed_member_drops_its_files_and_begins_anew_when_it_is_added_again(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.create("orders")
        await cluster.append("orders", b"x")
        await cluster.remove("orders", "n2")
        await until(lambda: cluster.has("orders", "n0", "n1"))
        await until(lambda: not cluster.files("n2", "orders").exists())
        await until(lambda: not cluster.record("n1", "orders").names(NodeId("n2")))
        await cluster.stop("n2")
        await cluster.start("n2")
        await until(lambda: "orders" in cluster.nodes["n2"].groups.names)
        assert cluster.has("orders", "n0", "n1"), "a founder that dropped it is no founder any more"
        await cluster.add("orders", "n2")
        await cluster.promote("orders", "n2")
        await until(lambda: cluster.has("orders", "n0", "n1", "n2"))
        await cluster.append("orders", b"y")
        replica = cluster.replica("n2", "orders")
        assert replica is not None
        await until(lambda: replica.log.state.next_index == 2)
        await until(lambda: cluster.record("n2", "orders").names(NodeId("n2")))


async def test_a_node_that_was_away_during_its_removal_drops_the_group_when_it_is_back(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.create("orders")
        await cluster.append("orders", b"x")
        await cluster.stop("n2")
        await cluster.remove("orders", "n2")
        assert cluster.files("n2", "orders").exists()
        await cluster.start("n2")
        await until(lambda: not cluster.files("n2", "orders").exists())
        await cluster.append("orders", b"y")


async def test_a_replica_stays_while_its_removal_is_not_committed(tmp_path: Path) -> None:
    """Though its own log, which has the frame, does not name it any more."""
    async with running(tmp_path) as cluster:
        await cluster.create("orders")
        await cluster.append("orders", b"x")
        leader = next(each for each, node in cluster.nodes.items() if node.replica("orders").leads)
        gone, other = (each for each in cluster.nodes if each != leader)
        for each in (gone, other):
            cluster.faults.cut(NodeId(each), NodeId(leader))
        with pytest.raises(DLedgerError):
            await cluster.nodes[leader].replica("orders").members.remove(NodeId(gone))
        replica = cluster.replica(gone, "orders")
        assert replica is not None
        assert NodeId(gone) not in replica.core.membership.members
        for node in cluster.nodes.values():
            node.directory.on_members()
        await asyncio.sleep(0.3)
        assert cluster.replica(gone, "orders") is replica
        cluster.faults.heal()
        await until(lambda: cluster.has("orders", leader, other))


async def test_a_leader_does_not_drop_what_it_leads(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.create("orders")
        await cluster.append("orders", b"x")
        node = next(node for node in cluster.nodes.values() if node.replica("orders").leads)
        assert not await node.groups.drop(cluster.key_of("orders"), LogPosition(Position(1 << 40), Term(1 << 40)))


async def test_a_log_with_a_later_change_is_not_dropped(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.create("orders")
        await cluster.remove("orders", "n2")
        await until(lambda: cluster.has("orders", "n0", "n1"))
        stale = cluster.record("n1", "orders").known.as_of
        await cluster.add("orders", "n2")
        await until(lambda: cluster.has("orders", "n0", "n1", "n2"))
        replica = cluster.replica("n2", "orders")
        assert replica is not None
        await until(lambda: replica.log.state.members_position > stale.position)
        assert not await cluster.nodes["n2"].groups.drop(replica.group, stale)


async def test_a_dropped_founder_takes_no_part_in_founding_whatever_a_record_says(tmp_path: Path) -> None:
    """Its directory, applied again from the beginning, may know the group as it was founded."""
    async with running(tmp_path) as cluster:
        await cluster.create("orders")
        founders = cluster.record("n2", "orders").founders
        await cluster.remove("orders", "n2")
        await until(lambda: cluster.has("orders", "n0", "n1"))
        await until(lambda: not cluster.files("n2", "orders").exists())
        node = cluster.nodes["n2"]
        await node.groups.open(cluster.key_of("orders"), founders)
        assert not node.replica("orders").core.membership.members, "it waits for the leader's frames"


async def test_files_that_a_killed_drop_left_go_with_the_next_start(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.create("orders")
        key = cluster.key_of("orders")
        node = cluster.nodes["n2"]
        assert node._identity is not None
        await cluster.stop("n2")
        shutil.copytree(cluster.files("n2", "orders"), tmp_path / "kept")
        await cluster.remove("orders", "n2")
        await cluster.start("n2")
        await until(lambda: not cluster.files("n2", "orders").exists())
        await cluster.stop("n2")
        shutil.copytree(tmp_path / "kept", cluster.data_dir("n2") / "groups" / key)
        await cluster.start("n2")
        assert not cluster.files("n2", "orders").exists()


async def test_the_cluster_keeps_a_node_that_other_groups_need(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await with_member(cluster, "n3")
        for name in ("orders", "bills"):
            await cluster.create(name, "n0", "n1", "n3")
        with pytest.raises(DLedgerError, match="bills, orders") as refused:
            await cluster.ask(lambda node: node.directory.check_leaves(NodeId("n3")))
        assert refused.value.code is Code.CHANGE_REFUSED
        for name in ("orders", "bills"):
            await cluster.remove(name, "n3")
        await until(lambda: not any(cluster.record("n0", name).names(NodeId("n3")) for name in ("orders", "bills")))
        await cluster.ask(lambda node: node.directory.check_leaves(NodeId("n3")))


async def test_only_nodes_of_the_cluster_are_added_to_a_group(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.start("n3")
        directory = cluster.nodes["n0"].directory
        with pytest.raises(DLedgerError, match="add it to the cluster first") as refused:
            await directory.address_of(NodeId("n3"), "n3:1")
        assert refused.value.code is Code.UNKNOWN_MEMBER
        await cluster.add(META_GROUP, "n3")
        assert await directory.address_of(NodeId("n3"), "") == "n3:1"
        with pytest.raises(DLedgerError, match="at n3:1, not at n9:1"):
            await directory.address_of(NodeId("n3"), "n9:1")


async def test_a_data_directory_of_a_cluster_without_a_directory_of_groups_is_refused(tmp_path: Path) -> None:
    from tests.unit.node.groups import machines  # noqa: PLC0415

    async with machines(tmp_path):
        pass
    cluster = Cluster(tmp_path, 3)
    with pytest.raises(DLedgerError, match="start a new cluster in empty directories") as refused:
        await cluster.start("n0")
    assert refused.value.code is Code.UNSUPPORTED_VERSION
    await cluster.nodes["n0"].stop()


async def test_the_refusal_of_an_old_directory_names_a_command_that_gives_every_record(tmp_path: Path) -> None:
    from tests.unit.node.groups import machines  # noqa: PLC0415

    records = [b"%d" % number for number in range(25)]
    async with machines(tmp_path) as old:
        await old.append(DEFAULT_GROUP, *records)
        node_id = (await old.leader()).config.id
    cluster = Cluster(tmp_path, 3)
    with pytest.raises(DLedgerError, match=r"dledger (log dump .*) \| dledger append") as refused:
        await cluster.start(node_id)
    await cluster.nodes[node_id].stop()
    [arguments] = re.findall(r"dledger (log dump .*) \| dledger append", str(refused.value))
    printed = await asyncio.to_thread(lambda: CliRunner().invoke(cli, arguments.split()))
    assert printed.stdout_bytes.splitlines() == records


async def test_what_is_asked_before_default_is_there_is_asked_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 3)
    await cluster.start("n0")
    with pytest.raises(DLedgerError) as refused:
        await NodeLog(cluster.nodes["n0"], DEFAULT_GROUP).append(b"x")
    assert refused.value.code is Code.LEADER_NOT_READY
    await cluster.start("n1", "n2")
    await cluster.append(DEFAULT_GROUP, b"x")
    await cluster.stop()


async def test_a_group_that_is_not_here_any_more_is_told_of_by_its_name_and_not_by_its_key(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        groups = cluster.nodes["n0"].groups
        assert groups.name_of("orders.18") == "orders"
        assert groups.name_of(DEFAULT_GROUP) == DEFAULT_GROUP


async def test_a_group_that_is_removed_is_handed_over_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may have given it up already: nobody would take it, and the node would wait for them."""
    left: list[object] = []

    async def leave(transfer: LeadershipTransfer) -> None:
        left.append(transfer)

    async with running(tmp_path) as cluster:
        await cluster.create("orders")
        with monkeypatch.context() as patch:
            patch.setattr(LeadershipTransfer, "leave", leave)
            await cluster.ask(lambda node: node.directory.delete("orders"))
            await until(lambda: cluster.has("orders"))
            assert not left
