"""Building a store from the items of a checkpoint."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from dledger.store.checkpoint import BASE_ITEM, CHANGE_ITEM, HEAD_ITEM, Item, damaged
from dledger.store.leases import LEASE_ITEM, Lease, Leases
from dledger.store.mvcc import FIRST_REVISION, Mvcc
from dledger.store.records import Record, is_tombstone, key_of, lease_of
from dledger.v1 import store_pb2

M = TypeVar("M", bound=Message)


class Loader:
    """Takes the items in order: the head, leases, the base, changes."""

    def __init__(self) -> None:
        self.head = store_pb2.StoreHead()
        self.pairs = Mvcc()
        self.leases = Leases()
        self._is_in_base = True

    def take(self, item: Item) -> None:
        """Raises CORRUPT_LOG."""
        kind, data = item
        if kind == BASE_ITEM:
            self.pairs.load_base(data)
            self._attach(data)
        elif kind == CHANGE_ITEM:
            self._take_change(data)
        elif kind == LEASE_ITEM:
            lease = _parsed(store_pb2.StoreLease, data)
            self.leases.add(Lease(lease.id, lease.ttl_s, lease.serial))
        elif kind == HEAD_ITEM:
            self.head = _parsed(store_pb2.StoreHead, data)
            compacted = self.head.compact_revision
            self.pairs = Mvcc(max(compacted, FIRST_REVISION), compacted)
            self.leases = Leases(self.head.lease_serial)
        else:
            raise damaged(f"it has an item of kind {kind!r}")

    def end(self) -> None:
        """There are no more items. Raises CORRUPT_LOG."""
        self._end_base()
        self.pairs.end()
        if self.pairs.revision != self.head.revision:
            raise damaged(f"it ends at revision {self.pairs.revision}, not at {self.head.revision}")

    def _end_base(self) -> None:
        if self._is_in_base:
            self._is_in_base = False
            self.pairs.end_base(int.from_bytes(self.head.base_digest, "little"))

    def _take_change(self, change: Record) -> None:
        self._end_base()
        before = self.pairs.load_change(change)
        if before is not None:
            self.leases.detach(lease_of(before), key_of(before))
        if not is_tombstone(change):
            self._attach(change)

    def _attach(self, record: Record) -> None:
        """An old record may name a lease that was revoked since: the changes that follow say so of the key, too."""
        lease = lease_of(record)
        if lease and self.leases.get(lease) is not None:
            self.leases.attach(lease, key_of(record))


def _parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as reason:
        raise damaged(str(reason)) from reason
