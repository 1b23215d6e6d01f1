"""The groups as records of the store: what transactions make of them, and what the table makes of the records."""

from __future__ import annotations

import pytest

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import Member, NodeId, Position, Term
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.node.groups import LogPosition
from dledger.server.meta.group_records import GroupEntry, GroupMembers, change_txn, create_txn, remove_txn
from dledger.server.meta.group_table import GroupTable
from dledger.store.commands import command
from dledger.store.machine import Store

FOUNDERS = (Member(NodeId("n1"), "h:1", True, b"disk", 3, 7),)


def members(*node_ids: str) -> tuple[Member, ...]:
    return tuple(Member(NodeId(each), f"{each}:1") for each in node_ids)


def told(*node_ids: str, changed_at: int, position: int, term: int = 3) -> GroupMembers:
    return GroupMembers(members(*node_ids), Position(changed_at), LogPosition(Position(position), Term(term)))


class Groups:
    """A store, and a table that follows it."""

    def __init__(self) -> None:
        self.store = Store()
        self.table = GroupTable()
        self.follow()

    def follow(self) -> bool:
        return self.table.take_in(self.store.pairs)

    def apply(self, txn: rpc.TxnRequest) -> bool:
        """Whether it succeeded."""
        answer = self.store.decode_answer(self.store.apply(command(txn, is_system=True)))
        self.follow()
        return bool(answer.succeeded)

    def create(self, name: str, *founders: Member) -> GroupEntry:
        assert self.apply(create_txn(name, founders or FOUNDERS))
        return self.table.groups[name]


def test_a_group_begins_with_its_founders_as_they_were() -> None:
    entry = Groups().create("orders")
    assert entry.members == entry.founders == FOUNDERS
    assert not entry.known.changed_at


def test_a_name_is_given_once() -> None:
    groups = Groups()
    entry = groups.create("orders")
    assert not groups.apply(create_txn("orders", members("n5")))
    assert groups.table.groups["orders"] == entry
    with pytest.raises(DLedgerError) as refused:
        groups.table.check_free("orders")
    assert refused.value.code is Code.GROUP_EXISTS


def test_a_change_of_a_record_that_was_changed_meanwhile_does_nothing() -> None:
    groups = Groups()
    seen = groups.create("orders")
    known = told("n1", "n2", changed_at=9, position=12)
    assert groups.apply(change_txn(seen, seen._replace(known=known)))
    assert not groups.apply(change_txn(seen, seen._replace(is_sealing=True)))
    assert groups.table.groups["orders"].known == known
    assert groups.table.groups["orders"].id == seen.id


def test_a_removed_group_leaves_a_tombstone_and_another_of_its_name_has_another_id() -> None:
    groups = Groups()
    removed = groups.create("orders")
    assert groups.apply(remove_txn(removed))
    assert not groups.table.groups
    assert groups.table.removed_ids == {removed.id}
    again = groups.create("orders")
    assert again.id > removed.id
    assert not groups.apply(remove_txn(removed))
    with pytest.raises(DLedgerError):
        groups.table.of_id("orders", removed.id)


def test_a_table_of_a_store_that_is_there_already_has_the_same() -> None:
    groups = Groups()
    entry = groups.create("orders")
    groups.create("bills", *members("n2"))
    groups.apply(change_txn(entry, entry._replace(known=told("n0", "n2", changed_at=9, position=12))))
    groups.apply(remove_txn(groups.table.groups["bills"]))
    late = GroupTable()
    assert late.take_in(groups.store.pairs)
    assert late.groups == groups.table.groups
    assert late.removed_ids == groups.table.removed_ids


def test_only_changes_of_groups_are_news() -> None:
    groups = Groups()
    groups.store.apply(command(rpc.PutRequest(key=b"theirs", value=b"1")))
    assert not groups.follow()


def test_a_store_that_was_built_anew_is_read_anew() -> None:
    groups = Groups()
    groups.create("orders")
    groups.store = Store()
    assert groups.follow()
    assert not groups.table.groups
