"""One watch over all its streams: what it was told so far, and what it has to be told next.

It is told of every change of its keys, in order, each once, whole revisions at a time, or that what it lacks is
compacted.
"""

from __future__ import annotations

from dledger.etcdpb import kv_pb2 as kv
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.store.watcher import watched_range
from tests.simulation.store.store_truth import StoreTruth
from tests.simulation.violation import Violation

NODELETE, NOPUT = rpc.WatchCreateRequest.NODELETE, rpc.WatchCreateRequest.NOPUT


class Watched:
    def __init__(self, name: str, truth: StoreTruth, asked: rpc.WatchCreateRequest) -> None:
        """``asked`` without where to start."""
        self.name = name
        self._truth = truth
        self._asked = asked
        self._of = watched_range(asked)
        self.next_revision = 0
        """It was told of all changes before; 0: it begins with whatever comes next."""
        self._fragments: list[kv.Event] = []
        self.is_created = False
        """On the present stream."""
        self.was_cancelled = False

    def request(self, watch_id: int) -> rpc.WatchRequest:
        """For a new stream: it goes on from where it was."""
        self.is_created = self.was_cancelled = False
        self._fragments = []
        request = rpc.WatchCreateRequest()
        request.CopyFrom(self._asked)
        request.watch_id, request.start_revision = watch_id, self.next_revision
        return rpc.WatchRequest(create_request=request)

    def start_at(self, revision: int) -> None:
        self.next_revision = revision

    # What it is told ---------------------------------------------------------------------------------------------

    def take(self, response: rpc.WatchResponse) -> None:
        revision = response.header.revision
        if revision > self._truth.revision:
            raise Violation("only what is committed is watched", f"{self.name}: revision {revision}")
        if response.created:
            self.is_created = True
            self.next_revision = self.next_revision or revision + 1
        elif not self.is_created:
            raise Violation("a watch is created first", f"{self.name}: {response}")
        elif response.canceled:
            self._cancel(response)
        elif response.events or self._fragments:
            self._take_events(response)
        else:
            self.progress(revision)

    def _take_events(self, response: rpc.WatchResponse) -> None:
        self._fragments += response.events
        if response.fragment:
            return
        events, self._fragments = self._fragments, []
        first, last = self.next_revision, events[-1].kv.mod_revision
        if last > response.header.revision:
            raise Violation("a watch has no gap", f"{self.name}: {last} at revision {response.header.revision}")
        expected = self.expected(first, last)
        told = [(each.type, each.kv) for each in events]
        if told != [(each.type, each.kv) for each in expected]:
            raise Violation("a watch has no gap", f"{self.name} from {first}: {_brief(events)}, not {_brief(expected)}")
        for each in events:
            self._check_before(each)
        self.next_revision = last + 1

    def _check_before(self, event: kv.Event) -> None:
        pair, before = event.kv, None
        if self._asked.prev_kv and pair.create_revision != pair.mod_revision:
            before = self._truth.history.pair(pair.key, pair.mod_revision - 1)
        told = event.prev_kv if event.HasField("prev_kv") else None
        is_compacted = told is None and self._truth.compact_revision >= pair.mod_revision
        if told != before and not is_compacted:
            raise Violation("a watch says what was before", f"{self.name}: {told} before {pair}, not {before}")

    def progress(self, revision: int) -> None:
        """All changes up to there were told."""
        missing = self.expected(self.next_revision, revision)
        if missing:
            raise Violation("progress follows the events", f"{self.name} at {revision}: {_brief(missing)}")
        self.next_revision = max(self.next_revision, revision + 1)

    def _cancel(self, response: rpc.WatchResponse) -> None:
        compacted = response.compact_revision
        if not self.next_revision < compacted <= self._truth.compact_revision:
            raise Violation(
                "a watch ends where it is compacted",
                f"{self.name} at {self.next_revision}: {response.cancel_reason} {compacted}",
            )
        self.next_revision, self.is_created, self.was_cancelled = 0, False, True

    def expected(self, first: int, last: int) -> list[kv.Event]:
        left_out = {
            kind for kind, name in ((kv.Event.DELETE, NODELETE), (kv.Event.PUT, NOPUT)) if name in self._asked.filters
        }
        if not first:
            return []
        return [each for each in self._truth.history.events(self._of, first, last) if each.type not in left_out]

    @property
    def is_level(self) -> bool:
        """It was told of all that there is."""
        return self.is_created and not self.expected(self.next_revision, self._truth.revision)


def _brief(events: list[kv.Event]) -> list[tuple[int, bytes]]:
    return [(each.kv.mod_revision, each.kv.key) for each in events]
