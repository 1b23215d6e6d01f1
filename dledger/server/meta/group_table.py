"""The groups of the cluster, by their records in the store: read once, then kept up to date."""

from __future__ import annotations

from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.types import DEFAULT_GROUP, META_GROUP
from dledger.etcdpb import kv_pb2
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.meta.group_records import GROUPS_PREFIX, REMOVED_PREFIX, GroupEntry, entry_of, removed_id_of
from dledger.store.keys import prefix_end
from dledger.store.machine import Store
from dledger.store.mvcc import Mvcc
from dledger.store.reads import read_range
from dledger.store.watch import WatchHub, WatchStream

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
        self._watch: WatchStream | None = None

    def take_in(self, store: Store, hub: WatchHub) -> bool:
        """Brings the table up to the store; ``hub`` has taken that in. Returns whether a group has changed."""
        if self._watch is None or store.pairs is not self._pairs:
            self._read(store, hub)
            return True
        is_changed = False
        while self._watch.is_ready:
            response = self._watch.next()
            if response is None:
                continue
            if response.canceled:  # what it lacks was compacted away
                self._read(store, hub)
                return True
            for event in response.events:
                self._take(event)
                is_changed = True
        return is_changed

    def _read(self, store: Store, hub: WatchHub) -> None:
        if self._watch is not None:
            self._watch.close()
        self._pairs, self._watch = store.pairs, hub.open(lambda: None)
        self.groups, self.removed_ids = {}, set()
        for prefix in _PREFIXES:
            found = rpc.RangeResponse()
            read_range(store.pairs, rpc.RangeRequest(key=prefix, range_end=prefix_end(prefix)), found)
            for pair in found.kvs:
                self._put(pair)
            self._watch.create(rpc.WatchCreateRequest(key=prefix, range_end=prefix_end(prefix)))

    def _take(self, event: kv_pb2.Event) -> None:
        if event.type == kv_pb2.Event.PUT:
            self._put(event.kv)
        elif event.kv.key.startswith(GROUPS_PREFIX):
            self.groups.pop(event.kv.key.removeprefix(GROUPS_PREFIX).decode(), None)

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
