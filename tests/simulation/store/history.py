"""All that ever was in the store, nothing of it compacted. What anybody read or watched is held against it.

It reads in its own way, key by key.
"""

from __future__ import annotations

from collections.abc import Iterator

from dledger.etcdpb import kv_pb2 as kv
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.store.keys import KeyRange, key_range
from dledger.store.mvcc import Mvcc
from dledger.store.records import is_tombstone, pair_of


class History:
    """Of a store that is never cleaned."""

    def __init__(self) -> None:
        self.revision = 1
        self._events: list[kv.Event] = []
        self._ends: dict[int, int] = {1: 0}
        """By revision: how many changes there were up to it."""
        self._of_key: dict[bytes, list[kv.KeyValue]] = {}
        """All that the key was, oldest first; a deletion has no version."""

    def take(self, pairs: Mvcc) -> None:
        """What was changed since."""
        for number in range(len(self._events), pairs.changes.end):
            change = pairs.changes[number]
            pair = pair_of(change)
            self._events.append(
                kv.Event(type=kv.Event.DELETE if is_tombstone(change) else kv.Event.PUT, kv=pair),
            )
            self._of_key.setdefault(pair.key, []).append(pair)
            self._ends[pair.mod_revision] = len(self._events)
        self.revision = pairs.revision

    # Reads -------------------------------------------------------------------------------------------------------

    def pair(self, key: bytes, revision: int) -> kv.KeyValue | None:
        """None: the key did not exist then."""
        found = None
        for each in self._of_key.get(key, ()):
            if each.mod_revision > revision:
                break
            found = each
        return found if found is not None and found.version else None

    def pairs(self, of: KeyRange, revision: int) -> list[kv.KeyValue]:
        then = (self.pair(key, revision) for key in sorted(self._of_key) if key in of)
        return [each for each in then if each is not None]

    def range(self, request: rpc.RangeRequest, revision: int) -> list[kv.KeyValue]:
        """``revision``: of the store when it was asked."""
        return self.pairs(key_range(request.key, request.range_end), request.revision or revision)

    # Watches -----------------------------------------------------------------------------------------------------

    def events(self, of: KeyRange, first: int, last: int) -> Iterator[kv.Event]:
        """Of revisions from ``first`` to ``last``, both included, in their order."""
        begin = self._ends[max(1, min(first - 1, self.revision))]
        for event in self._events[begin : self._ends[max(1, min(last, self.revision))]]:
            if event.kv.key in of:
                yield event
