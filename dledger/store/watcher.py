"""One watcher: what it is to be told, and how far it was."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dledger.etcdpb import kv_pb2 as kvpb
from dledger.etcdpb import rpc_pb2 as pb
from dledger.store.keys import KeyRange, key_range
from dledger.store.mvcc import Mvcc
from dledger.store.reads import previous
from dledger.store.records import Record, is_tombstone, key_of, mod_of, pair_of

MAX_PENDING = 128
"""Events of a watcher that are kept for it. One that is further behind is served from the store's history."""
MAX_REVISIONS = 1_000
MAX_BATCH_BYTES = 1 << 20
"""Of a response, where another revision would make it larger. One revision is never cut, whatever its size."""
SCANNED_AT_ONCE = 2_000
"""Changes that are looked at for a watcher, before others have their turn."""


class Seen(NamedTuple):
    """A change that a watcher is to be told of."""

    change: Record
    before: Record | None
    """What the key was before, if the watcher wants it and it is not compacted."""


class Watcher:
    """A watcher is *level* while every change is offered to it as it is taken in, and *behind* while it goes through
    the history. Invariant: all changes of its keys before ``next_revision`` were given or are pending; a level one was
    offered all changes since."""

    __slots__ = (
        "filters",
        "is_behind",
        "next_revision",
        "of",
        "pending",
        "start_revision",
        "wants_before",
        "wants_fragments",
        "wants_progress",
        "was_told",
        "watch_id",
    )

    def __init__(self, watch_id: int, request: pb.WatchCreateRequest, of: KeyRange, next_revision: int) -> None:
        self.watch_id = watch_id
        self.of = of
        self.start_revision = request.start_revision
        """As it was asked for; 0: from the present on."""
        self.next_revision = next_revision
        self.is_behind = False
        self.filters = frozenset(request.filters)
        self.wants_before = request.prev_kv
        self.wants_fragments = request.fragment
        self.wants_progress = request.progress_notify
        self.was_told = False
        """Of an event, since the last round of progress notifications."""
        self.pending: deque[Seen] | None = None
        """None: nothing is."""

    @property
    def has_more(self) -> bool:
        return self.pending is not None or self.is_behind

    def is_told(self, change: Record) -> bool:
        """Of one of its keys: whether its filters let the change through."""
        kind = pb.WatchCreateRequest.NODELETE if is_tombstone(change) else pb.WatchCreateRequest.NOPUT
        return kind not in self.filters

    def seen(self, change: Record, pairs: Mvcc) -> Seen:
        return Seen(change, previous(pairs, change) if self.wants_before else None)

    def offer(self, change: Record, pairs: Mvcc) -> bool:
        """A change of its keys, to a level one. False: it has too many pending, and is to go behind."""
        if mod_of(change) < self.next_revision or not self.is_told(change):
            return True
        if self.pending is None:
            self.pending = deque()
        elif len(self.pending) >= MAX_PENDING:
            return False
        self.pending.append(self.seen(change, pairs))
        return True

    def fall_behind(self) -> None:
        """What is pending is read again from the history."""
        if self.pending is not None:
            self.next_revision = mod_of(self.pending[0].change)
            self.pending = None
        self.is_behind = True

    def take_pending(self) -> list[Seen]:
        """As much as one response may have, in whole revisions. It has some."""
        assert self.pending is not None
        batch = Batch()
        while self.pending and batch.has_room_for(self.pending[0].change):
            batch.add(self.pending.popleft())
        if not self.pending:
            self.pending = None
        return batch.events

    def scan(self, pairs: Mvcc, end: int) -> list[Seen]:
        """As much of the history, before the change of number ``end``, as has its turn now. It goes on where it ended
        the next time, and is no longer behind once it was at the end. It is not compacted."""
        changes, batch = pairs.changes, Batch()
        first = at = changes.find(self.next_revision)
        while at < end:
            change = changes[at]
            mod = mod_of(change)
            if mod != self.next_revision - 1:
                if not batch.has_room_for(change) or at - first >= SCANNED_AT_ONCE:
                    return batch.events
                self.next_revision = mod + 1
            if key_of(change) in self.of and self.is_told(change):
                batch.add(self.seen(change, pairs))
            at += 1
        self.is_behind = False
        return batch.events


class Batch:
    """Of the events of a response: whole revisions."""

    def __init__(self) -> None:
        self.events: list[Seen] = []
        self._revisions = 0
        self._last = 0
        self._bytes = 0

    def has_room_for(self, change: Record) -> bool:
        """One more of the last revision always has room."""
        is_full = self._revisions >= MAX_REVISIONS or self._bytes + len(change) > MAX_BATCH_BYTES
        return not self.events or mod_of(change) == self._last or not is_full

    def add(self, seen: Seen) -> None:
        mod = mod_of(seen.change)
        self._revisions += mod != self._last
        self._last = mod
        self._bytes += len(seen.change) + len(seen.before or b"")
        self.events.append(seen)


def event_of(seen: Seen) -> kvpb.Event:
    change, before = seen
    kind = kvpb.Event.DELETE if is_tombstone(change) else kvpb.Event.PUT
    return kvpb.Event(type=kind, kv=pair_of(change), prev_kv=None if before is None else pair_of(before))


def watched_range(request: pb.WatchCreateRequest) -> KeyRange:
    """An empty key is the smallest there can be. An empty end is that one key alone, never all from there on."""
    return key_range(request.key or b"\0", request.range_end)
