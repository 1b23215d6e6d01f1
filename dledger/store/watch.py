"""Watches: who is told of which changes, on one node. No IO; nothing is queued but a few events a watcher.

A ``WatchStream`` holds the watchers of one client's stream, and is asked for its next response when there is room to
send one. What it gives is

* in order of revision, each change once, and no revision in two responses but as fragments;
* without a gap: a watcher that is slow is served from the store's history, or cancelled with the revision that is
  compacted at;
* never ahead: a progress notification of a revision comes after all events up to it.

A watcher goes on over a store that is built anew (``take_in`` with other pairs): from where it was, with nothing twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from dledger.etcdpb import rpc_pb2 as pb
from dledger.store.keys import KeyRange
from dledger.store.mvcc import Mvcc
from dledger.store.records import key_of, mod_of
from dledger.store.refusals import StoreCode
from dledger.store.watch_index import WatchIndex
from dledger.store.watcher import Seen, Watcher, event_of, watched_range

INVALID_WATCH_ID = -1
"""In responses that are of no watcher, or of all of a stream."""
MAX_FRAGMENT_BYTES = 2 << 20
_EMPTY_RANGE = "mvcc: watcher range is empty"
_DUPLICATE_ID = "mvcc: duplicate watch ID provided on the WatchStream"


class WatchHub:
    """Of a node. ``take_in`` is called when commands were applied, before anything is cleaned."""

    def __init__(self, pairs: Mvcc) -> None:
        self.pairs = pairs
        self.next_change = pairs.changes.end
        """The number of the first change that was not taken in."""
        self.revision = pairs.revision
        """That everything up to was taken in."""
        self._index: WatchIndex[tuple[WatchStream, Watcher]] = WatchIndex()
        """Of the watchers that are level."""
        self._streams: dict[WatchStream, None] = {}
        self.to_tell_progress: dict[WatchStream, None] = {}
        """Those that asked for their progress, and are not level."""

    def open(self, on_ready: Callable[[], None]) -> WatchStream:
        """``on_ready`` is called when the stream has a response where it had none."""
        stream = WatchStream(self, on_ready)
        self._streams[stream] = None
        return stream

    def forget(self, stream: WatchStream) -> None:
        self._streams.pop(stream, None)
        self.to_tell_progress.pop(stream, None)

    def count(self) -> int:
        """How many watchers there are."""
        return sum(map(len, list(self._streams)))  # also asked from another thread

    def take_in(self, pairs: Mvcc) -> None:
        """All changes that were applied since. ``pairs``: of the store as it is by now."""
        changes = pairs.changes
        if pairs is not self.pairs or changes.first > self.next_change:
            self._go_on_with(pairs)
        touched: dict[WatchStream, None] = {}
        for number in range(self.next_change, changes.end):
            change = changes[number]
            for stream, watcher in list(self._index.matching(key_of(change))):
                if not watcher.offer(change, pairs):
                    self.leave(stream, watcher)
                    watcher.fall_behind()
                if watcher.has_more:
                    stream.mark(watcher)
                    touched[stream] = None
        self.next_change, self.revision = changes.end, pairs.revision
        for stream in touched | self.to_tell_progress:
            stream.look()

    def _go_on_with(self, pairs: Mvcc) -> None:
        """Of a store that was built anew, which may be behind the one before, or ahead; or of one that forgot changes
        before they were taken in."""
        taken_in = self.revision
        self.pairs, self.next_change, self.revision = pairs, pairs.changes.end, pairs.revision
        for stream in self._streams:
            for watcher in stream.watchers():
                if not watcher.is_behind:
                    self.leave(stream, watcher)
                    watcher.next_revision = max(watcher.next_revision, taken_in + 1)
                    self.place(stream, watcher)
            stream.look()

    def place(self, stream: WatchStream, watcher: Watcher) -> None:
        """Levels a watcher if there is nothing for it in the history."""
        watcher.is_behind = watcher.next_revision <= self.revision
        if watcher.is_behind:
            stream.mark(watcher)
        else:
            self.level(stream, watcher)

    def level(self, stream: WatchStream, watcher: Watcher) -> None:
        self._index.add(watcher.of, (stream, watcher))

    def leave(self, stream: WatchStream, watcher: Watcher) -> None:
        self._index.remove(watcher.of, (stream, watcher))


class WatchStream:
    """Of one client. Call ``next`` while ``is_ready``."""

    def __init__(self, hub: WatchHub, on_ready: Callable[[], None]) -> None:
        self._hub = hub
        self._on_ready = on_ready
        self._watchers: dict[int, Watcher] = {}
        self._next_id = 0
        self._first: deque[pb.WatchResponse] = deque()
        """Go before all else: what was created or ended, progress, and what is left of a response in fragments."""
        self._marked: dict[Watcher, None] = {}
        """Have something, in the order of their turns."""
        self._was_ready = False

    def __len__(self) -> int:
        return len(self._watchers)

    def watchers(self) -> Iterable[Watcher]:
        return self._watchers.values()

    # Requests ----------------------------------------------------------------------------------------------------

    def create(self, request: pb.WatchCreateRequest) -> None:
        hub, of = self._hub, watched_range(request)
        reason = self._refusal(request, of)
        if reason:
            self._say(pb.WatchResponse(watch_id=INVALID_WATCH_ID, created=True, canceled=True, cancel_reason=reason))
            return
        next_revision = request.start_revision or hub.revision + 1
        watcher = Watcher(request.watch_id or self._free_id(), request, of, next_revision)
        self._watchers[watcher.watch_id] = watcher
        hub.place(self, watcher)
        self._say(pb.WatchResponse(watch_id=watcher.watch_id, created=True))

    def _refusal(self, request: pb.WatchCreateRequest, of: KeyRange) -> str:
        if request.start_revision < 0:
            return StoreCode.COMPACTED.text
        if of.is_empty:
            return _EMPTY_RANGE
        return _DUPLICATE_ID if request.watch_id in self._watchers and request.watch_id else ""

    def _free_id(self) -> int:
        while self._next_id in self._watchers:
            self._next_id += 1
        self._next_id += 1
        return self._next_id - 1

    def cancel(self, watch_id: int) -> None:
        """Does nothing for a watcher that is not there. Nothing of it comes after the response."""
        watcher = self._watchers.get(watch_id)
        if watcher is not None:
            self._end(watcher)
            self._say(pb.WatchResponse(watch_id=watch_id, canceled=True))

    def request_progress(self) -> None:
        """The answer comes once all watchers of the stream are level; with none there is none."""
        if self._watchers:
            self._hub.to_tell_progress[self] = None
            self.look()

    def notify_progress(self) -> None:
        """A round of progress notifications, to those who asked for them and were told of no event since the last."""
        for watcher in self._watchers.values():
            if watcher.wants_progress:
                if not watcher.was_told and self._is_level(watcher):
                    self._say(pb.WatchResponse(watch_id=watcher.watch_id))
                watcher.was_told = False

    def close(self) -> None:
        for watcher in list(self._watchers.values()):
            self._end(watcher)
        self._first.clear()
        self._hub.forget(self)

    def _end(self, watcher: Watcher) -> None:
        del self._watchers[watcher.watch_id]
        self._marked.pop(watcher, None)
        if not watcher.is_behind:
            self._hub.leave(self, watcher)
        if not self._watchers:
            self._hub.to_tell_progress.pop(self, None)

    def _say(self, response: pb.WatchResponse) -> None:
        """As of now."""
        response.header.revision = self._hub.revision
        self._first.append(response)
        self.look()

    # Responses ---------------------------------------------------------------------------------------------------

    def mark(self, watcher: Watcher) -> None:
        self._marked[watcher] = None

    def look(self) -> None:
        """Tells whoever waits if there is something by now."""
        is_ready = self.is_ready
        if is_ready and not self._was_ready:
            self._was_ready = True
            self._on_ready()
        self._was_ready = is_ready

    @property
    def is_ready(self) -> bool:
        return bool(self._first or self._marked) or (self in self._hub.to_tell_progress and self._are_level())

    def _is_level(self, watcher: Watcher) -> bool:
        """Whether it was given all events up to the hub's revision, and its watch has begun by then."""
        revision = self._hub.revision
        return not watcher.has_more and watcher.next_revision <= revision + 1 and watcher.start_revision <= revision

    def _are_level(self) -> bool:
        return all(map(self._is_level, self._watchers.values()))

    def next(self) -> pb.WatchResponse | None:
        """What is to be sent next. None: there is nothing to send yet, and more to do if it ``is_ready``. The header
        has the revision alone."""
        response = self._next()
        self._was_ready = self.is_ready
        return response

    def _next(self) -> pb.WatchResponse | None:
        if self._first:
            return self._first.popleft()
        if self._marked:
            watcher = next(iter(self._marked))
            del self._marked[watcher]
            response = self._of(watcher)
            if watcher.has_more and self._watchers.get(watcher.watch_id) is watcher:
                self.mark(watcher)
            return response
        if self in self._hub.to_tell_progress and self._are_level():
            del self._hub.to_tell_progress[self]
            header = pb.ResponseHeader(revision=self._hub.revision)
            return pb.WatchResponse(header=header, watch_id=INVALID_WATCH_ID)
        return None

    def _of(self, watcher: Watcher) -> pb.WatchResponse | None:
        if watcher.pending is not None:
            return self._respond(watcher, watcher.take_pending())
        hub = self._hub
        if watcher.next_revision < hub.pairs.compact_revision:
            self._end(watcher)
            compacted = hub.pairs.compact_revision
            return pb.WatchResponse(
                header=pb.ResponseHeader(), watch_id=watcher.watch_id, canceled=True, compact_revision=compacted
            )
        events = watcher.scan(hub.pairs, hub.next_change)
        if not watcher.is_behind:
            hub.level(self, watcher)
        return self._respond(watcher, events) if events else None

    def _respond(self, watcher: Watcher, events: list[Seen]) -> pb.WatchResponse:
        watcher.was_told = True
        is_all = not watcher.has_more
        revision = self._hub.revision if is_all else mod_of(events[-1].change)
        response = pb.WatchResponse(header=pb.ResponseHeader(revision=revision), watch_id=watcher.watch_id)
        response.events.extend(map(event_of, events))
        if watcher.wants_fragments and len(events) > 1 and response.ByteSize() >= MAX_FRAGMENT_BYTES:
            self._first.extend(_fragments(response))
            return self._first.popleft()
        return response


def _fragments(response: pb.WatchResponse) -> list[pb.WatchResponse]:
    """All but the last say that more follows. Each has one event at least."""
    fragments: list[pb.WatchResponse] = []
    size_bytes = 0
    for event in response.events:
        event_bytes = event.ByteSize()
        if not fragments or size_bytes + event_bytes >= MAX_FRAGMENT_BYTES:
            size_bytes = 0
            fragments.append(pb.WatchResponse(header=response.header, watch_id=response.watch_id, fragment=True))
        fragments[-1].events.append(event)
        size_bytes += event_bytes
    fragments[-1].fragment = False
    return fragments
