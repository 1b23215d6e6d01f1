"""The nine guarantees of etcd's watches, over clients that pull as they like, compaction, cleaning, and stores that are
built anew at any point.

Ordered · unique · atomic · reliable · resumable · bookmarkable · filters exact · prev_kv right or compacted · is_create
right. Whatever a watcher is given is a beginning of what the plainest store says it is to be given. Once its stream has
no more to give, it is all of it, unless the watcher was cancelled with the revision that is compacted at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dledger.etcdpb import kv_pb2 as kvpb
from dledger.etcdpb import rpc_pb2 as pb
from dledger.store import commands, watch, watcher
from dledger.store.machine import Store
from dledger.store.refusals import StoreRefused
from dledger.store.watch import WatchHub
from tests.unit.store import strategies
from tests.unit.store.reference import No, Reference


async def _restored(parts: list[bytes]) -> Store:
    async def given() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    store = Store()
    await store.restore(given())
    return store


class Told:
    """What a client knows of one watch."""

    def __init__(self, request: pb.WatchCreateRequest, start: int) -> None:
        self.request = request
        self.start = start
        self.events: list[kvpb.Event] = []
        self.last_revision = 0
        """That an event was of, in a response that was whole."""
        self.is_in_fragments = False
        self.is_cancelled = False

    def expected(self, reference: Reference) -> list[tuple[int, bool, kvpb.KeyValue]]:
        unwanted = [kind == pb.WatchCreateRequest.NODELETE for kind in self.request.filters]
        all_events = reference.events(self.request.key or b"\0", self.request.range_end, self.start)
        return [each for each in all_events if each[1] not in unwanted]

    def take(self, response: pb.WatchResponse, reference: Reference) -> None:
        assert not self.is_cancelled
        if response.canceled:
            assert response.compact_revision in (0, reference.compacted)
            self.is_cancelled = True
            return
        for event in response.events:
            self._check(event, reference)
        revisions = [event.kv.mod_revision for event in response.events]
        if revisions:
            assert self.is_in_fragments or revisions[0] > self.last_revision, "a revision is in two responses"
            self.last_revision = revisions[-1]
            assert response.header.revision >= revisions[-1]
        self.is_in_fragments = response.fragment
        self.events += response.events
        given = [(each.kv.mod_revision, each.type == kvpb.Event.DELETE, each.kv) for each in self.events]
        assert given == self.expected(reference)[: len(given)]
        if not response.events and not response.created:
            self.check_progress(response.header.revision, reference)

    def _check(self, event: kvpb.Event, reference: Reference) -> None:
        before = reference.before(event.kv.key, event.kv.mod_revision)
        is_create = event.type == kvpb.Event.PUT and event.kv.create_revision == event.kv.mod_revision
        if event.HasField("prev_kv"):
            assert self.request.prev_kv
            assert event.prev_kv == before
        elif self.request.prev_kv and not is_create and before is not None:
            assert event.kv.mod_revision - 1 < reference.compacted

    def check_progress(self, revision: int, reference: Reference) -> None:
        due = [each for each in self.expected(reference) if each[0] <= revision]
        assert len(self.events) >= len(due), "a notification overtook events"
        assert self.request.start_revision <= revision, "a watch of the future heard of the present"


class WatchesAreTrue(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.reference, self.store = Reference(), Store()
        self.log: list[bytes] = []
        self.hub = WatchHub(self.store.pairs)
        self.ready = [False, False]
        self.streams = [self.hub.open(lambda: self._be_ready(0)), self.hub.open(lambda: self._be_ready(1))]
        self.told: list[dict[int, Told]] = [{}, {}]
        self.created: list[list[Told]] = [[], []]
        """Before their responses came."""

    def _be_ready(self, at: int) -> None:
        self.ready[at] = True

    @initialize(pending=st.sampled_from([1, 3, 128]), scanned=st.sampled_from([1, 4, 2_000]), size=st.integers(60, 400))
    def small_limits(self, pending: int, scanned: int, size: int) -> None:
        self.limits = pytest.MonkeyPatch()
        self.limits.setattr(watcher, "MAX_PENDING", pending)
        self.limits.setattr(watcher, "SCANNED_AT_ONCE", scanned)
        self.limits.setattr(watcher, "MAX_BATCH_BYTES", size)
        self.limits.setattr(watch, "MAX_FRAGMENT_BYTES", size)
        for at in (0, 1):
            request = pb.WatchCreateRequest(key=b"\0", range_end=b"\0", prev_kv=at == 0, progress_notify=True)
            self.created[at].append(Told(request, self.reference.revision + 1))
            self.streams[at].create(request)

    def teardown(self) -> None:
        for at in (0, 1):
            self.pull_all(at)
        self.limits.undo()

    def submit(self, request: commands.Request, of_reference: Any) -> None:
        try:
            command = commands.command(request, is_system=True)
        except StoreRefused:
            return  # judged by the request alone
        try:
            self.store.apply(command)
        except StoreRefused:
            with pytest.raises(No):
                of_reference(request)
        else:
            self.log.append(command)
            of_reference(request)

    @rule(requests=st.lists(strategies.simple_puts, min_size=1, max_size=6))
    def put_some(self, requests: list[pb.PutRequest]) -> None:
        for request in requests:
            self.submit(request, self.reference.put)

    @rule(request=strategies.puts)
    def put(self, request: pb.PutRequest) -> None:
        self.submit(request, self.reference.put)

    @rule(request=strategies.deletes)
    def delete(self, request: pb.DeleteRangeRequest) -> None:
        self.submit(request, self.reference.delete_range)

    @rule(request=strategies.txns())
    def txn(self, request: pb.TxnRequest) -> None:
        self.submit(request, self.reference.txn)

    @rule(back=st.integers(0, 6))
    def compact(self, back: int) -> None:
        request = pb.CompactionRequest(revision=self.reference.revision - back)
        self.submit(request, self.reference.compact)

    @rule(requests=st.lists(strategies.simple_puts, min_size=2, max_size=6))
    def starve(self, requests: list[pb.PutRequest]) -> None:
        """Whoever does not pull meanwhile is behind, and what it lacks is forgotten."""
        self.take_in()
        self.put_some(requests)
        self.take_in()
        self.compact(0)
        self.store.clean(100)

    @rule(takes_in=st.booleans())
    def clean(self, takes_in: bool) -> None:
        if takes_in:
            self.take_in()
        self.store.clean(5)

    @rule()
    def take_in(self) -> None:
        self.hub.take_in(self.store.pairs)

    @rule()
    def restore_from_a_checkpoint(self) -> None:
        self.store = asyncio.run(_restored(list(self.store.checkpoint())))

    @rule(count=st.integers(0, 200))
    def replay_the_log(self, count: int) -> None:
        self.store = Store()
        for command in self.log[:count]:
            self.store.apply(command)
        self.take_in()
        for command in self.log[count:]:
            self.store.apply(command)

    @rule(
        at=st.integers(0, 1),
        key=st.sampled_from([*strategies.KEYS, b""]),
        end=strategies.ends,
        start=st.integers(-8, 3),
        origin=st.sampled_from(["now", "relative", "relative", "compacted"]),
        filters=st.lists(st.sampled_from([0, 1]), max_size=1),
        flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    )
    def create(self, **drawn: Any) -> None:
        self.take_in()
        starts = {
            "now": 0,
            "relative": max(1, self.reference.revision + drawn["start"]),
            "compacted": max(1, self.reference.compacted),
        }
        start = starts[drawn["origin"]]
        prev_kv, fragment, progress_notify = drawn["flags"]
        request = pb.WatchCreateRequest(
            key=drawn["key"],
            range_end=drawn["end"],
            start_revision=start,
            filters=drawn["filters"],
            prev_kv=prev_kv,
            fragment=fragment,
            progress_notify=progress_notify,
        )
        self.created[drawn["at"]].append(Told(request, start or self.reference.revision + 1))
        self.streams[drawn["at"]].create(request)

    @rule(at=st.integers(0, 1), watch_id=st.integers(0, 3))
    def cancel(self, at: int, watch_id: int) -> None:
        self.streams[at].cancel(watch_id)

    @rule(at=st.integers(0, 1))
    def request_progress(self, at: int) -> None:
        self.streams[at].request_progress()

    @rule(at=st.integers(0, 1))
    def notify_progress(self, at: int) -> None:
        self.streams[at].notify_progress()

    @rule(at=st.integers(0, 1))
    def pull(self, at: int) -> None:
        stream = self.streams[at]
        if stream.is_ready:
            response = stream.next()
            self.ready[at] = stream.is_ready
            if response is not None:
                self.receive(at, response)

    def receive(self, at: int, response: pb.WatchResponse) -> None:
        if response.created:
            told = self.created[at].pop(0)
            assert response.canceled == (response.watch_id == watch.INVALID_WATCH_ID)
            if not response.canceled:
                self.told[at][response.watch_id] = told
        elif response.watch_id == watch.INVALID_WATCH_ID:
            for told in self.told[at].values():
                if not told.is_cancelled:
                    told.check_progress(response.header.revision, self.reference)
        else:
            self.told[at][response.watch_id].take(response, self.reference)

    @rule(at=st.integers(0, 1))
    def pull_all(self, at: int) -> None:
        self.take_in()
        while self.streams[at].is_ready:
            self.pull(at)
        for told in self.told[at].values():
            if not told.is_cancelled:
                assert len(told.events) == len(told.expected(self.reference)), "there is a gap"

    @invariant()
    def who_has_something_was_told_so(self) -> None:
        for at, stream in enumerate(self.streams):
            assert self.ready[at] == stream.is_ready

    @invariant()
    def only_level_watchers_are_in_the_index(self) -> None:
        index = self.hub._index
        groups = [*index._by_key.values(), *index._by_prefix.values(), *index._by_range.values()]
        level = [each for stream in self.streams for each in stream.watchers() if not each.is_behind]
        assert sum(map(len, groups)) == len(level)


TestWatchesAreTrue = WatchesAreTrue.TestCase
TestWatchesAreTrue.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
