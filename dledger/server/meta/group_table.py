"""The groups of the cluster, by their records in the store: read once, then kept up to date."""

from __future__ import annotations

from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.types import DEFAULT_GROUP, META_GROUP
from dledger.etcdpb import kv_pb2
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.meta.group_records import GROUPS_PREFIX, REMOVED_PREFIX, GroupEntry, entry_of, removed_id_of
from dledger.store.keys import prefix_end
from dledger.store.mvcc import Mvcc
from dledger.store.reads import read_range
from dledger.store.records import Record, is_tombstone, key_of, pair_of

_PREFIXES = (GROUPS_PREFIX, REMOVED_PREFIX)


def no_group(name: str) -> DLedgerError:
    return error(Code.UNKNOWN_GROUP, f"there is no group {quoted(name)}: see `dledger group list`")


class GroupTable:
    """Invariants: names are unique; no id is both in ``groups`` and in ``removed_ids``."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupEntry] = {}
        """By name."""
        self.removed_ids: set[int] = set()
        self._pairs: Mvcc | None = None
        """The source of the table."""
        self._next_change = 0
        """The number of the first change that the table lacks."""

    def take_in(self, pairs: Mvcc) -> bool:
        """Brings the table up to the store's pairs. Returns whether a group has changed."""
        changes = pairs.changes
        if pairs is not self._pairs or changes.first > self._next_change:
            self._read(pairs)
            return True
        is_changed = False
        for number in range(self._next_change, changes.end):
            change = changes[number]
            if key_of(change).startswith(_PREFIXES):
                self._take(change)
                is_changed = True
        self._next_change = changes.end
        return is_changed

    def _read(self, pairs: Mvcc) -> None:
        self._pairs, self._next_change = pairs, pairs.changes.end
        self.groups, self.removed_ids = {}, set()
        for prefix in _PREFIXES:
            found = rpc.RangeResponse()
            read_range(pairs, rpc.RangeRequest(key=prefix, range_end=prefix_end(prefix)), found)
            for pair in found.kvs:
                self._put(pair)

    def _take(self, change: Record) -> None:
        pair = pair_of(change)
        if not is_tombstone(change):
            self._put(pair)
        elif pair.key.startswith(GROUPS_PREFIX):
            self.groups.pop(pair.key.removeprefix(GROUPS_PREFIX).decode(), None)

    def _put(self, pair: kv_pb2.KeyValue) -> None:
        if pair.key.startswith(GROUPS_PREFIX):
            entry = entry_of(pair)
            self.groups[entry.name] = entry
        else:
            self.removed_ids.add(removed_id_of(pair.key))

    # Its refusals ------------------------------------------------------------------------------------------------

    def check_free(self, name: str) -> None:
        """Raises GROUP_EXISTS if a group has that name."""
        known = self.groups.get(name)
        if name == META_GROUP or known is not None:
            what = "is being removed" if known is not None and known.is_sealing else "exists"
            raise error(Code.GROUP_EXISTS, f"group {quoted(name)} {what}: choose another name")

    def removable(self, name: str, group_id: int = 0) -> GroupEntry:
        """The group of that name, and of that id unless it is 0. Raises UNKNOWN_GROUP without one, UNSUPPORTED for the
        cluster's own groups, and CHANGE_REFUSED for another id."""
        if name in (META_GROUP, DEFAULT_GROUP):
            raise error(Code.UNSUPPORTED, f"group {name!r} is the cluster's own, and stays")
        entry = self.groups.get(name)
        if entry is None:
            raise no_group(name)
        if group_id not in (0, entry.id):
            text = f"group {quoted(name)} has id {entry.id} by now, not {group_id}: it was deleted and made again"
            raise error(Code.CHANGE_REFUSED, text)
        return entry

    def of_id(self, name: str, group_id: int) -> GroupEntry:
        """The group of that name and id. Raises UNKNOWN_GROUP without one."""
        entry = self.groups.get(name)
        if entry is None or entry.id != group_id:
            raise no_group(f"{name}.{group_id}")
        return entry
