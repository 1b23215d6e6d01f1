"""The groups as records of the store: what each key means, and the transactions that change them. No IO.

::

    /dledger/groups/NAME              founders, members, whether it is being removed
    /dledger/removed-groups/NAME.ID   a tombstone, for good

The id of a group is the revision at which its record was created. So no two groups that ever were have the same, and a
group that was removed is never taken for another of its name. The record has a group's members as its leader told them
last: the group's own log has the last word, and the record follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dledger.common.types import Member, NodeId, Position, Term, group_key, id_of
from dledger.etcdpb import kv_pb2
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.log.frame.control import member_record, members_of
from dledger.node.groups import LogPosition
from dledger.v1 import directory_pb2 as pb

GROUPS_PREFIX = b"/dledger/groups/"
REMOVED_PREFIX = b"/dledger/removed-groups/"


class GroupMembers(NamedTuple):
    """The members of a group, by the committed part of its log."""

    members: tuple[Member, ...]
    changed_at: Position = Position(0)
    """Of the last change of them; 0: there was none."""
    as_of: LogPosition = LogPosition(Position(0), Term(0))
    """How far the log was committed then: no frame up to there changed them later."""


class GroupEntry(NamedTuple):
    """One group."""

    name: str
    id: int
    founders: tuple[Member, ...]
    known: GroupMembers
    is_sealing: bool = False
    """It is being removed: its log is sealed first, then its record goes."""
    revision: int = 0
    """Of the store, when the record was changed last."""

    @property
    def members(self) -> tuple[Member, ...]:
        """As the group's leader told them last."""
        return self.known.members

    def names(self, node_id: NodeId) -> bool:
        """Whether that node is a member."""
        return any(each.id == node_id for each in self.members)

    @property
    def key(self) -> str:
        """Its key among nodes and in their directories: another one for each group that ever was."""
        return group_key(self.name, self.id)


def entry_of(pair: kv_pb2.KeyValue) -> GroupEntry:
    record = pb.GroupEntry.FromString(pair.value)
    founders = members_of(record.founders)
    known = members_in(record.members) if record.HasField("members") else GroupMembers(founders)
    name = pair.key.removeprefix(GROUPS_PREFIX).decode()
    return GroupEntry(name, pair.create_revision, founders, known, record.is_sealing, pair.mod_revision)


def removed_id_of(key: bytes) -> int:
    """Of the group that a tombstone is of."""
    removed = id_of(key.removeprefix(REMOVED_PREFIX).decode())
    assert removed is not None, "a tombstone is named by the group's key"
    return removed


def record_of(entry: GroupEntry) -> bytes:
    record = pb.GroupEntry(
        founders=map(member_record, entry.founders),
        is_sealing=entry.is_sealing,
        members=members_record(entry.known) if entry.known.changed_at else None,
    )
    encoded: bytes = record.SerializeToString(deterministic=True)
    return encoded


def members_record(known: GroupMembers) -> pb.GroupMembers:
    members = map(member_record, known.members)
    position, term = known.as_of
    return pb.GroupMembers(members=members, changed_at=known.changed_at, position=position, term=term)


def members_in(record: pb.GroupMembers) -> GroupMembers:
    as_of = LogPosition(Position(record.position), Term(record.term))
    return GroupMembers(members_of(record.members), Position(record.changed_at), as_of)


# Transactions: each succeeds only where the record is as its writer has seen it -----------------------------------


def create_txn(name: str, founders: Sequence[Member]) -> rpc.TxnRequest:
    key = GROUPS_PREFIX + name.encode()
    entry = GroupEntry(name, 0, tuple(founders), GroupMembers(tuple(founders)))
    absent = rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=0)
    return rpc.TxnRequest(compare=[absent], success=[_put(key, record_of(entry))])


def change_txn(seen: GroupEntry, changed: GroupEntry) -> rpc.TxnRequest:
    key = GROUPS_PREFIX + seen.name.encode()
    return rpc.TxnRequest(compare=[_unchanged(key, seen)], success=[_put(key, record_of(changed))])


def remove_txn(seen: GroupEntry) -> rpc.TxnRequest:
    """The record goes, and its tombstone comes."""
    key = GROUPS_PREFIX + seen.name.encode()
    delete = rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))
    tombstone = _put(REMOVED_PREFIX + seen.key.encode(), b"")
    return rpc.TxnRequest(compare=[_unchanged(key, seen)], success=[delete, tombstone])


def _unchanged(key: bytes, seen: GroupEntry) -> rpc.Compare:
    return rpc.Compare(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=seen.revision)


def _put(key: bytes, value: bytes) -> rpc.RequestOp:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value))
