"""What a client of a watch stream sees: by the bugs that etcd had."""

from __future__ import annotations

import pytest

from dledger.etcdpb import kv_pb2 as kvpb
from dledger.etcdpb import rpc_pb2 as pb
from dledger.store import watch, watcher
from dledger.store.commands import command, found_command
from dledger.store.machine import Store
from dledger.store.watch import INVALID_WATCH_ID, WatchHub, WatchStream
from tests.unit.store.test_machine import restored

PUT, DELETE = kvpb.Event.PUT, kvpb.Event.DELETE


class Client:
    """A store, a hub and a stream of one client."""

    def __init__(self) -> None:
        self.store = Store()
        self.hub = WatchHub(self.store.pairs)
        self.woken = 0
        self.stream = self.open()

    def open(self) -> WatchStream:
        def wake() -> None:
            self.woken += 1

        return self.hub.open(wake)

    def do(self, *requests: pb.PutRequest | pb.DeleteRangeRequest | pb.TxnRequest) -> None:
        for request in requests:
            self.store.apply(command(request))
        self.hub.take_in(self.store.pairs)

    def put(self, *keys: bytes, value: bytes = b"v") -> None:
        self.do(*[pb.PutRequest(key=key, value=value) for key in keys])

    def compact(self, revision: int) -> None:
        self.store.apply(command(pb.CompactionRequest(revision=revision)))
        self.hub.take_in(self.store.pairs)

    def watch(self, key: bytes = b"a", **fields: object) -> None:
        self.stream.create(pb.WatchCreateRequest(key=key, **fields))  # type: ignore[arg-type]

    def pull(self) -> list[pb.WatchResponse]:
        """All that there is."""
        responses = []
        while self.stream.is_ready:
            response = self.stream.next()
            if response is not None:
                responses.append(response)
        return responses


@pytest.fixture
def client() -> Client:
    return Client()


def revisions(responses: list[pb.WatchResponse]) -> list[int]:
    return [event.kv.mod_revision for response in responses for event in response.events]


# What is created and ended ----------------------------------------------------------------------------------------


def test_the_response_to_its_creation_comes_before_all_events_of_a_watch(client: Client) -> None:
    client.put(b"a")
    client.watch(start_revision=1)
    created, events = client.pull()
    assert (created.created, created.watch_id, created.header.revision) == (True, 0, 2)
    assert revisions([events]) == [2]


def test_ids_are_given_out_in_order_and_pass_over_those_that_clients_chose(client: Client) -> None:
    client.watch(watch_id=1)
    client.watch()
    client.watch()
    assert [response.watch_id for response in client.pull()] == [1, 0, 2]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"watch_id": 7}, "mvcc: duplicate watch ID provided on the WatchStream"),
        ({"key": b"b", "range_end": b"a"}, "mvcc: watcher range is empty"),
        ({"key": b"b", "range_end": b"b"}, "mvcc: watcher range is empty"),
        ({"start_revision": -1}, "etcdserver: mvcc: required revision has been compacted"),
    ],
)
def test_what_cannot_be_watched_is_refused_with_etcds_words(
    client: Client, fields: dict[str, object], reason: str
) -> None:
    client.watch(watch_id=7)
    client.pull()
    client.watch(**fields)  # type: ignore[arg-type]
    (response,) = client.pull()
    assert (response.created, response.canceled, response.watch_id) == (True, True, INVALID_WATCH_ID)
    assert response.cancel_reason == reason


def test_nothing_of_a_watch_comes_after_it_was_cancelled(client: Client) -> None:
    client.watch()
    client.put(b"a")
    client.stream.cancel(0)
    client.put(b"a")
    created, cancelled = client.pull()
    assert created.created
    assert cancelled.canceled
    assert client.hub.count() == 0


def test_to_cancel_what_is_not_there_has_no_response(client: Client) -> None:
    client.stream.cancel(5)
    assert client.pull() == []


def test_a_closed_stream_leaves_nothing_behind(client: Client) -> None:
    client.watch()
    client.watch(start_revision=1, key=b"b", range_end=b"c")
    client.stream.request_progress()
    client.stream.close()
    client.put(b"a")
    assert client.hub.count() == 0
    assert list(client.hub._index.matching(b"a")) == []
    assert not client.stream.is_ready


# Which events -----------------------------------------------------------------------------------------------------


def test_a_watch_of_the_past_begins_with_the_revision_it_names(client: Client) -> None:
    client.put(b"a", b"a", b"b", b"a")
    client.watch(start_revision=3)
    assert revisions(client.pull()) == [3, 5]


def test_a_watch_of_the_future_is_silent_until_then(client: Client) -> None:
    client.put(b"a")
    client.watch(start_revision=5, progress_notify=True)
    client.pull()
    client.put(b"a", b"a")
    client.stream.notify_progress()
    client.stream.request_progress()
    assert client.pull() == []
    client.put(b"a")
    response = client.pull()[0]
    assert revisions([response]) == [5]


def test_filters_let_through_exactly_the_rest(client: Client) -> None:
    client.watch(filters=[pb.WatchCreateRequest.NOPUT])
    client.watch(filters=[pb.WatchCreateRequest.NODELETE])
    client.put(b"a")
    client.do(pb.DeleteRangeRequest(key=b"a"))
    told = [(response.watch_id, [event.type for event in response.events]) for response in client.pull()[2:]]
    assert sorted(told) == [(0, [DELETE]), (1, [PUT])]


def test_the_pair_before_is_told_where_it_is_wanted_and_not_compacted(client: Client) -> None:
    client.put(b"a", value=b"1")
    client.put(b"a", value=b"2")
    client.put(b"a", value=b"3")
    client.compact(3)
    client.watch(start_revision=3, prev_kv=True)
    _, response = client.pull()
    assert [event.prev_kv.value for event in response.events] == [b"", b"2"]


def test_a_deletion_at_the_revision_that_is_compacted_is_told(client: Client) -> None:
    client.put(b"a")
    client.do(pb.DeleteRangeRequest(key=b"a"))
    client.compact(3)
    client.store.clean(100)
    client.watch(start_revision=3)
    _, response = client.pull()
    assert [event.type for event in response.events] == [DELETE]


def test_a_watch_below_the_revision_that_is_compacted_is_cancelled_with_it(client: Client) -> None:
    client.put(b"a", b"a", b"a")
    client.compact(4)
    client.watch(start_revision=3)
    _, response = client.pull()
    assert (response.canceled, response.compact_revision, response.watch_id) == (True, 4, 0)


# Slow clients -----------------------------------------------------------------------------------------------------


def test_a_client_that_was_slow_gets_all_from_the_history(client: Client) -> None:
    client.watch()
    client.put(*[b"a"] * 1_000)
    assert revisions(client.pull()) == list(range(2, 1_002))


def test_a_client_that_falls_behind_later_gets_nothing_twice(client: Client) -> None:
    client.watch()
    client.put(b"a", b"a")
    client.pull()
    client.put(*[b"a"] * 1_000)
    assert revisions(client.pull()) == list(range(4, 1_004))


def test_what_is_kept_for_a_slow_client_is_bounded(client: Client) -> None:
    client.watch()
    client.put(*[b"a"] * 1_000)
    (kept,) = client.stream.watchers()
    assert len(kept.pending or ()) <= watcher.MAX_PENDING


def test_a_client_that_was_slow_over_a_compaction_is_cancelled_and_never_short(client: Client) -> None:
    client.watch()
    client.put(*[b"a"] * 1_000)
    client.compact(900)
    client.store.clean(10_000)
    *events, last = client.pull()
    assert revisions(events) == []
    assert (last.canceled, last.compact_revision) == (True, 900)


def test_a_client_that_was_a_little_slow_is_complete_even_over_a_compaction(client: Client) -> None:
    client.watch()
    client.put(b"a", b"a", b"a")
    client.compact(4)
    client.store.clean(100)
    assert revisions(client.pull()) == [2, 3, 4]


def test_changes_that_were_forgotten_before_they_were_taken_in_cancel_the_watch(client: Client) -> None:
    client.watch()
    client.pull()
    for _ in range(3):
        client.store.apply(command(pb.PutRequest(key=b"a")))
    client.store.apply(command(pb.CompactionRequest(revision=4)))
    client.store.clean(100)
    client.hub.take_in(client.store.pairs)
    (response,) = client.pull()
    assert response.compact_revision == 4


def test_one_slow_watch_does_not_hold_up_another_of_its_stream(client: Client) -> None:
    client.put(*[b"b"] * 5_000)
    client.watch(b"none", start_revision=1)
    client.watch(b"a")
    client.put(b"a")
    turns = [client.stream.next() for _ in range(4)]
    assert any(response is not None and response.events for response in turns)


# Whole revisions --------------------------------------------------------------------------------------------------


def large_txn(count: int, size_bytes: int) -> pb.TxnRequest:
    puts = [pb.PutRequest(key=b"a%d" % at, value=bytes(size_bytes)) for at in range(count)]
    return pb.TxnRequest(success=[pb.RequestOp(request_put=put) for put in puts])


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_revision_is_in_one_response_whatever_its_size(client: Client, is_slow: bool) -> None:
    if not is_slow:
        client.watch(range_end=b"b")
    for _ in range(3):
        client.do(large_txn(20, 60_000))
    if is_slow:
        client.watch(range_end=b"b", start_revision=1)
    responses = client.pull()[1:]
    assert [set(revisions([response])) for response in responses] == [{2}, {3}, {4}]


def test_fragments_are_told_as_such_and_the_last_one_ends_the_response(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MAX_FRAGMENT_BYTES", 2_000)
    client.watch(range_end=b"b", fragment=True)
    client.do(large_txn(10, 500))
    _, *responses = client.pull()
    assert [response.fragment for response in responses] == [True] * (len(responses) - 1) + [False]
    assert all(response.ByteSize() < 2_100 for response in responses)
    assert revisions(responses) == [2] * 10


# Progress ---------------------------------------------------------------------------------------------------------


def test_progress_that_was_asked_for_is_of_all_watches_of_the_stream(client: Client) -> None:
    client.watch()
    client.watch(b"b")
    client.put(b"c", b"c")
    client.pull()
    client.stream.request_progress()
    (response,) = client.pull()
    assert (response.watch_id, response.header.revision, len(response.events)) == (INVALID_WATCH_ID, 3, 0)


def test_progress_waits_until_all_watches_of_the_stream_are_level(client: Client) -> None:
    client.put(*[b"b"] * 5_000)
    client.watch(b"b", start_revision=1)
    client.stream.request_progress()
    *before, last = client.pull()
    assert len(revisions(before)) == 5_000
    assert (last.watch_id, last.header.revision) == (INVALID_WATCH_ID, 5_001)


def test_a_notification_never_overtakes_events(client: Client) -> None:
    client.watch(progress_notify=True)
    client.put(b"a")
    client.stream.notify_progress()
    created, events = client.pull()
    assert created.created
    assert revisions([events]) == [2]


def test_notifications_go_to_those_who_asked_for_them_and_heard_nothing(client: Client) -> None:
    client.watch(b"a", progress_notify=True)
    client.watch(b"b", progress_notify=True)
    client.watch(b"c")
    client.put(b"a")
    client.pull()
    client.stream.notify_progress()
    assert [response.watch_id for response in client.pull()] == [1]
    client.stream.notify_progress()
    assert [response.watch_id for response in client.pull()] == [0, 1]


def test_a_stream_without_watches_has_no_progress(client: Client) -> None:
    client.stream.request_progress()
    assert client.pull() == []


# Stores that are built anew ---------------------------------------------------------------------------------------


def test_over_a_checkpoint_a_watch_gets_only_what_it_lacks(client: Client) -> None:
    client.put(b"a", b"a")
    client.watch()
    client.put(b"a")
    client.pull()
    ahead = restored(list(client.store.checkpoint()))
    ahead.apply(command(pb.PutRequest(key=b"a")))
    client.hub.take_in(ahead.pairs)
    assert revisions(client.pull()) == [5]


def test_an_idle_watch_goes_on_over_a_checkpoint_that_is_compacted_up_to_the_present(client: Client) -> None:
    client.watch()
    client.pull()
    client.put(*[b"b"] * 10)
    client.compact(11)
    client.hub.take_in(restored(list(client.store.checkpoint())).pairs)
    assert client.pull() == []
    assert client.hub.count() == 1


def test_over_a_checkpoint_that_is_compacted_beyond_it_a_watch_is_cancelled(client: Client) -> None:
    client.watch()
    client.pull()
    ahead = Store()
    for _ in range(5):
        ahead.apply(command(pb.PutRequest(key=b"a")))
    ahead.apply(command(pb.CompactionRequest(revision=5)))
    client.hub.take_in(ahead.pairs)
    (response,) = client.pull()
    assert response.compact_revision == 5


def test_a_store_that_is_replayed_from_its_beginning_tells_nothing_twice(client: Client) -> None:
    client.watch()
    client.put(b"a", b"a")
    client.pull()
    client.store = Store()
    client.hub.take_in(client.store.pairs)
    client.put(b"a", b"a")
    assert client.pull() == []
    client.put(b"a")
    assert revisions(client.pull()) == [4]


def test_a_store_that_is_founded_further_on_cancels_watches(client: Client) -> None:
    client.watch()
    client.pull()
    client.store.apply(found_command(b"uuid", 1_000))
    client.hub.take_in(client.store.pairs)
    (response,) = client.pull()
    assert response.compact_revision == 1_000


# Waking -----------------------------------------------------------------------------------------------------------


def test_a_stream_is_woken_once_until_it_has_given_all(client: Client) -> None:
    client.watch()
    client.pull()
    client.woken = 0
    client.put(b"a", b"a")
    client.put(b"a")
    assert client.woken == 1
    client.pull()
    client.put(b"b")
    assert client.woken == 1
    client.put(b"a")
    assert client.woken == 2
