"""Which keys a call means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.client.store import keys
from dledger.client.store.keys import KeyRange, as_key, key_or_prefix, prefix_range, range_of
from dledger.common.errors import InvalidRequest
from dledger.store.keys import key_range
from dledger.store.keys import prefix_end as stores_prefix_end


def test_text_is_sent_as_utf_8_and_bytes_as_they_are() -> None:
    assert as_key("é") == "é".encode()
    assert as_key(b"\xff\0") == b"\xff\0"


@pytest.mark.parametrize("given", ["", b"", None, 7, "\udc80"])
def test_what_is_no_key_is_refused_with_one_sentence(given: object) -> None:
    with pytest.raises(InvalidRequest, match="key is"):
        as_key(given)


@given(st.binary(max_size=3), st.binary(min_size=1, max_size=4))
def test_a_prefix_means_all_keys_that_begin_so(prefix: bytes, key: bytes) -> None:
    assert keys.prefix_end(prefix) == stores_prefix_end(prefix)
    of = prefix_range(prefix)
    assert (key in key_range(of.key, of.end)) == key.startswith(prefix)


@given(st.none() | st.binary(max_size=2), st.none() | st.binary(min_size=1, max_size=2), st.binary(min_size=1))
def test_a_range_goes_from_its_start_to_before_its_end(start: bytes | None, end: bytes | None, key: bytes) -> None:
    try:
        of = range_of(None, start, end)
    except InvalidRequest:
        assert end is not None
        assert end <= (start or b"\0")
        return
    is_meant = (start or b"") <= key and (end is None or end == b"\0" or key < end)
    assert (key in key_range(of.key, of.end)) == is_meant


def test_a_range_is_named_in_one_way() -> None:
    with pytest.raises(InvalidRequest, match="one of the two"):
        range_of("a", "b")


@pytest.mark.parametrize(("key", "prefix"), [(None, None), ("a", "b")])
def test_a_deletion_names_a_key_or_a_prefix(key: str | None, prefix: str | None) -> None:
    with pytest.raises(InvalidRequest, match="prefix="):
        key_or_prefix(key, prefix)
    assert key_or_prefix("a", None) == KeyRange(b"a")
