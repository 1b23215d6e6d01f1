"""Many groups in one process: opened, found again, removed for good, and never mixed up."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from dledger.common.errors import Code, CorruptLog, DLedgerError, OutcomeUnknown, error
from dledger.common.types import DEFAULT_GROUP, Consistency, Position, Role
from dledger.group.group_record import GroupRecord
from dledger.log.log_api import Damaged, DamagedRange
from dledger.node.identity import Identity
from tests.unit.group.rot import until
from tests.unit.node.groups import IDS, machines

N0, N1, N2 = IDS
ORDERS, BILLS = "orders.7", "bills.9"


async def test_every_group_has_a_log_of_its_own(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        for group in (ORDERS, BILLS):
            await cluster.open_group(group)
        await cluster.append(DEFAULT_GROUP, b"d")
        await cluster.append(ORDERS, b"o1", b"o2")
        await cluster.append(BILLS, b"b")
        for group, values in ((DEFAULT_GROUP, [b"d"]), (ORDERS, [b"o1", b"o2"]), (BILLS, [b"b"])):
            reader = (await cluster.leader(group)).replica(group).reader
            point = await reader.read_point(Consistency.LINEARIZABLE)
            found = [(await reader.get(at, point)).value for at in range(len(values))]
            assert found == values


async def test_a_start_opens_what_is_on_its_disk_without_being_told(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        await cluster.open_group(ORDERS)
        await cluster.append(ORDERS, b"kept")
        await cluster.stop()
        await cluster.start()
        await cluster.append(ORDERS, b"more")
        assert all(set(node.groups.replicas) == {DEFAULT_GROUP, ORDERS} for node in cluster.nodes.values())
        await until(lambda: all(cluster.has_all(each, ORDERS, 2) for each in IDS))


async def test_a_group_of_some_nodes_lives_without_the_others(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        founders = cluster.founders(N0, N1)
        for each in (N0, N1):
            await cluster.nodes[each].groups.open(ORDERS, founders)
        await cluster.append(ORDERS, b"x")
        assert cluster.nodes[N2].groups.replicas.keys() == {DEFAULT_GROUP}


async def test_a_new_group_is_led_within_the_connections_that_exist(tmp_path: Path) -> None:
    """All nodes are old by then: no founder is as new as the cluster's were."""
    async with machines(tmp_path) as cluster:
        await cluster.append(DEFAULT_GROUP, b"old")
        await cluster.open_group(ORDERS)
        assert (await cluster.leader(ORDERS)).replica(ORDERS).role is Role.LEADER


async def test_two_emptied_disks_do_not_found_a_group_beside_the_one_that_was(tmp_path: Path) -> None:
    """The third holds acknowledged records. Its record names other disks than these two have now."""
    async with machines(tmp_path) as cluster:
        founders = cluster.founders()
        await cluster.open_group(ORDERS, founders)
        await cluster.append(ORDERS, b"acknowledged")
        await until(lambda: cluster.has_all(N2, ORDERS, 1))
        await cluster.stop()
        for each in (N0, N1):
            shutil.rmtree(cluster.data_dir(each))
        await cluster.start(N0, N1)
        for each in (N0, N1):
            node = cluster.nodes[each]
            with pytest.raises(DLedgerError) as refused:  # nor is there a cluster that it could be part of
                await node.groups.open(ORDERS, founders)
            assert refused.value.code is Code.LEADER_NOT_READY
        await cluster.start(N2)
        assert cluster.has_all(N2, ORDERS, 1)


async def test_a_node_whose_disk_the_record_does_not_name_is_sent_everything_and_does_not_vote(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        named = cluster.founders(N0, N1)
        other_disk = cluster.founders(N2)[0]._replace(node_uuid=b"another disk....")
        await cluster.open_group(ORDERS, [*named, other_disk])
        assert not cluster.nodes[N2].groups.replicas[ORDERS].core.is_voter, "it joined with an empty log"
        await cluster.append(ORDERS, b"x")
        await until(lambda: cluster.has_all(N2, ORDERS, 1))
        assert not cluster.nodes[N2].groups.replicas[ORDERS].core.may_vote
        await cluster.stop(N1)
        with pytest.raises((TimeoutError, OutcomeUnknown)):  # its leader, or one that steps down meanwhile
            async with asyncio.timeout(1):
                await cluster.append(ORDERS, b"of one disk alone")


async def test_a_removed_group_goes_with_its_files_and_is_never_opened_again(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        founders = cluster.founders()
        await cluster.open_group(ORDERS, founders)
        await cluster.append(ORDERS, b"x")
        for node in cluster.nodes.values():
            for _ in range(2):
                await node.groups.remove(ORDERS)
        assert not (cluster.data_dir(N0) / "groups" / ORDERS).exists()
        await cluster.stop()
        await cluster.start()
        for node in cluster.nodes.values():
            assert node.groups.replicas.keys() == {DEFAULT_GROUP}
            with pytest.raises(DLedgerError, match="removed for good") as refused:
                await node.groups.open(ORDERS, founders)
            assert refused.value.code is Code.UNKNOWN_GROUP


async def test_files_that_a_killed_removal_left_go_with_the_next_start(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        await cluster.open_group(ORDERS)
        node = cluster.nodes[N0]
        assert node._identity is not None
        await node._identity.remove_group(ORDERS)
        await cluster.stop()
        assert (cluster.data_dir(N0) / "groups" / ORDERS).exists()
        await cluster.start()
        assert not (cluster.data_dir(N0) / "groups" / ORDERS).exists()
        assert cluster.nodes[N0].groups.replicas.keys() == {DEFAULT_GROUP}


async def test_a_group_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        await cluster.open_group(ORDERS)
        await cluster.append(ORDERS, b"x")
        node = cluster.nodes[N0]
        node.groups.replicas[ORDERS].fail(Code.DISK_ERROR, "injected")
        with pytest.raises(DLedgerError, match="injected"):
            node.replica(ORDERS)
        await cluster.append(DEFAULT_GROUP, b"still here")
        await cluster.append(ORDERS, b"by the other two")
        assert node._failed is not None
        assert not node._failed.done()


async def test_the_founding_groups_failure_ends_the_node(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        node = cluster.nodes[N0]
        node.groups.replicas[DEFAULT_GROUP].fail(Code.DISK_ERROR, "injected")
        assert (await node.failed()).code is Code.DISK_ERROR


async def test_a_debt_keeps_a_node_from_voting_in_its_own_group_alone(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        await cluster.open_group(ORDERS)
        await cluster.append(ORDERS, b"x")
        node = cluster.nodes[N0]
        await node.owe_catch_up(ORDERS)
        await cluster.stop()
        await cluster.start(N0)
        replicas = cluster.nodes[N0].groups.replicas
        assert replicas[ORDERS].owes_catch_up
        assert not replicas[DEFAULT_GROUP].owes_catch_up
        await cluster.start(N1, N2)
        await until(lambda: not replicas[ORDERS].owes_catch_up)


async def test_no_group_is_opened_before_the_cluster_has_its_id(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        founders = cluster.founders()
        ids = {node.cluster_id for node in cluster.nodes.values()}
        await cluster.open_group(ORDERS, founders)
        await cluster.append(ORDERS, b"x")
        assert {
            node.groups.replicas[ORDERS].log.state.cluster_id
            for node in cluster.nodes.values()
            if ORDERS in node.groups.replicas
        } >= ids
        assert len(ids) == 1


async def test_an_opening_that_failed_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It left nothing behind that looks open, and is not."""
    async with machines(tmp_path) as cluster:
        founders, begin_start = cluster.founders(), GroupRecord.begin_start
        fails = [True]

        async def begin_or_fail(record: GroupRecord) -> None:
            if fails:
                fails.pop()
                raise error(Code.DISK_FULL, "injected")
            await begin_start(record)

        monkeypatch.setattr(GroupRecord, "begin_start", begin_or_fail)
        with pytest.raises(DLedgerError, match="injected"):
            await cluster.nodes[N0].groups.open(ORDERS, founders)
        assert ORDERS not in cluster.nodes[N0].groups.replicas
        await cluster.open_group(ORDERS, founders)
        await cluster.append(ORDERS, b"x")
        await until(lambda: all(cluster.has_all(each, ORDERS, 1) for each in IDS))


async def test_a_group_whose_name_could_not_be_kept_is_kept_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machines(tmp_path) as cluster:
        founders, save = cluster.founders(), Identity._save
        fails = [True]

        async def save_or_fail(identity: Identity) -> None:
            if fails:
                fails.pop()
                raise error(Code.DISK_FULL, "injected")
            await save(identity)

        monkeypatch.setattr(Identity, "_save", save_or_fail)
        with pytest.raises(DLedgerError, match="injected"):
            await cluster.nodes[N0].groups.open(ORDERS, founders)
        await cluster.open_group(ORDERS, founders)
        await cluster.append(ORDERS, b"x")
        await cluster.kill(N0)
        await cluster.start(N0)
        assert ORDERS in cluster.nodes[N0].groups.replicas, "a start opens it without being told"


async def test_a_group_that_is_removed_while_its_log_is_opened_anew_stays_removed(tmp_path: Path) -> None:
    """At whatever moment of the opening."""
    async with machines(tmp_path) as cluster:
        node = cluster.nodes[N0]
        for turns in range(0, 40, 4):
            group = f"g{turns}"
            await cluster.open_group(group)
            await cluster.append(group, b"x")
            log = node.groups.replicas[group].log
            await until(lambda log=log: log.last.position > 1)  # type: ignore[misc]
            node.on_stuck(group, Damaged("injected", DamagedRange(Position(2), Position(2), log.state.start)))
            for _ in range(turns):
                await asyncio.sleep(0)
            await node.groups.remove(group)
            await asyncio.gather(*node.groups._reopening)
            assert node.groups.replicas.keys() | node.groups.recovering.keys() == {DEFAULT_GROUP}
            assert not (cluster.data_dir(N0) / "groups" / group).exists()


async def test_a_disk_in_an_older_state_than_the_record_names_does_not_found(tmp_path: Path) -> None:
    """It may have opened the group, and acknowledged something in it, before it was restored."""
    async with machines(tmp_path) as cluster:
        await cluster.stop(N2)
        shutil.copytree(cluster.data_dir(N2), tmp_path / "backup")
        await cluster.start(N2)
        founders = cluster.founders()
        await cluster.stop(N2)
        shutil.rmtree(cluster.data_dir(N2))
        shutil.copytree(tmp_path / "backup", cluster.data_dir(N2))
        await cluster.start(N2)
        node = cluster.nodes[N2]
        await until(lambda: bool(node.cluster_id))
        await node.groups.open(ORDERS, founders)
        assert not node.groups.replicas[ORDERS].core.is_voter
        assert not node.groups.replicas[ORDERS].core.membership.members, "it joined with an empty log"


async def test_a_group_whose_promises_are_lost_does_not_keep_a_node_from_starting(tmp_path: Path) -> None:
    async with machines(tmp_path) as cluster:
        for group in (ORDERS, BILLS):
            await cluster.open_group(group)
            await cluster.append(group, b"x")
        await cluster.stop(N0)
        (cluster.data_dir(N0) / "groups" / ORDERS / "hard_state").unlink()
        await cluster.start(N0)
        node = cluster.nodes[N0]
        assert node.groups.replicas.keys() == {DEFAULT_GROUP, BILLS}
        with pytest.raises(CorruptLog, match="promises are lost"):
            node.replica(ORDERS)
        await cluster.append(BILLS, b"y")
        await cluster.append(ORDERS, b"by the other two")
