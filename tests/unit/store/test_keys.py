"""What a request's key and range_end mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.etcdpb import rpc_pb2 as pb
from dledger.store.keys import ALL_KEYS, FROM_KEY, key_range, prefix_end
from dledger.store.watch_index import WatchIndex
from dledger.store.watcher import watched_range

keys = st.binary(min_size=1, max_size=4) | st.text("\0\x01a\xff", min_size=1, max_size=3).map(
    lambda t: t.encode("latin1")
)


@given(keys, keys)
def test_no_end_is_the_key_alone_and_never_all_keys_from_it_on(key: bytes, other: bytes) -> None:
    assert (other in key_range(key, b"")) == (other == key)


@given(keys, keys)
def test_the_end_zero_is_all_keys_from_the_key_on(key: bytes, other: bytes) -> None:
    assert (other in key_range(key, FROM_KEY)) == (other >= key)


@given(keys, keys.filter(lambda end: end != FROM_KEY), keys)
def test_any_other_end_is_not_in_the_range(key: bytes, end: bytes, other: bytes) -> None:
    assert (other in key_range(key, end)) == (key <= other < end)


@given(keys)
def test_every_key_is_in_the_range_of_all_keys(key: bytes) -> None:
    assert key in key_range(ALL_KEYS, FROM_KEY)


@given(keys, keys)
def test_the_range_of_a_prefix_has_the_keys_that_begin_with_it(prefix: bytes, other: bytes) -> None:
    assert (other in key_range(prefix, prefix_end(prefix))) == other.startswith(prefix)


@given(keys, keys | st.just(b""), keys, keys | st.just(b""), keys)
def test_ranges_with_a_common_key_overlap(key: bytes, end: bytes, key2: bytes, end2: bytes, common: bytes) -> None:
    one, two = key_range(key, end), key_range(key2, end2)
    if common in one and common in two:
        assert one.overlaps(two)
    if one.overlaps(two):
        assert max(one.first, two.first) in one
        assert max(one.first, two.first) in two


@given(keys)
def test_a_single_key_is_known_as_one(key: bytes) -> None:
    assert key_range(key, b"").is_single
    assert not key_range(key, FROM_KEY).is_single


def test_a_watch_without_key_and_end_is_of_one_key_not_of_all() -> None:
    of = watched_range(pb.WatchCreateRequest())
    assert b"\0" in of
    assert b"a" not in of


@pytest.mark.parametrize("start", [b"a", b""])
def test_a_watch_from_a_key_on_is_of_all_after_it(start: bytes) -> None:
    assert b"\xff\xff\xff" in watched_range(pb.WatchCreateRequest(key=start, range_end=FROM_KEY))


@given(st.lists(st.tuples(keys, keys | st.just(b"")), max_size=12), st.data())
def test_the_index_finds_exactly_the_watchers_whose_range_has_the_key(
    ranges: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    index: WatchIndex[int] = WatchIndex()
    named = dict(enumerate([key_range(*each) for each in ranges]))
    named |= {100 + at: key_range(key, prefix_end(key)) for at, (key, _) in enumerate(ranges)}
    for name, of in named.items():
        index.add(of, name)
    gone = data.draw(st.sets(st.sampled_from(sorted(named)))) if named else set()
    for name in gone:
        index.remove(named.pop(name), name)
    key = data.draw(keys)
    assert sorted(index.matching(key)) == sorted(name for name, of in named.items() if key in of)


def test_the_index_keeps_nothing_of_watchers_that_ended() -> None:
    index: WatchIndex[int] = WatchIndex()
    for of in (key_range(b"a", b""), key_range(b"a", b"b"), key_range(b"a", b"\0")):
        index.add(of, 1)
        index.remove(of, 1)
    assert [*index._by_key, *index._by_prefix, *index._by_range, *index._lengths] == []
