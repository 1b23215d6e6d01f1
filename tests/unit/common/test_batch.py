"""The body of a batch: what is accepted is exactly what ``build_body`` can have made."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.common.batch import (
    LARGE_BODY_BYTES,
    MAX_KEPT_SIGNS,
    PIECE_BYTES,
    body_offsets,
    body_sums,
    build_body,
    check_body,
    crc32c,
    record_at,
    records_of,
)
from dledger.common.errors import Code, DLedgerError

MAX_RECORD_BYTES = 1 << 20

records = st.lists(st.binary(max_size=40), min_size=1, max_size=300)
i32 = st.integers(-(1 << 31), (1 << 31) - 1)


def accepted(body: bytes, count: int, max_record_bytes: int = MAX_RECORD_BYTES) -> bool:
    try:
        check_body(body, count, max_record_bytes)
    except DLedgerError:
        return False
    return True


@given(records)
def test_a_body_gives_its_records_back(given_records: list[bytes]) -> None:
    body, count = build_body(given_records), len(given_records)
    check_body(body, count, MAX_RECORD_BYTES)
    assert records_of(body, count) == given_records
    assert [record_at(body, count, ordinal) for ordinal in range(count)] == given_records


@given(
    offsets=st.lists(st.one_of(st.integers(0, 12), i32), min_size=2, max_size=80),
    data_bytes=st.integers(0, 12),
    fitting_ends=st.booleans(),
)
def test_offsets_are_accepted_iff_they_begin_at_zero_ascend_and_end_with_the_body(
    offsets: list[int], data_bytes: int, *, fitting_ends: bool
) -> None:
    if fitting_ends:
        offsets = [0, *offsets[1:-1], data_bytes]
    body = struct.pack(f"<{len(offsets)}i", *offsets) + bytes(data_bytes)
    well_formed = offsets[0] == 0 and offsets[-1] == data_bytes and offsets == sorted(offsets)
    assert accepted(body, len(offsets) - 1) == well_formed


@given(records, st.data())
def test_one_wrong_offset_is_refused_unless_it_still_ascends(given_records: list[bytes], data: st.DataObject) -> None:
    body, count = bytearray(build_body(given_records)), len(given_records)
    offsets = body_offsets(body, count)
    offsets[data.draw(st.integers(0, count))] = data.draw(i32)
    listed = offsets.tolist()
    offsets.release()
    total = len(body) - 4 * (count + 1)
    assert accepted(bytes(body), count) == (listed == sorted(listed) and listed[0] == 0 and listed[-1] == total)


@pytest.mark.parametrize("count", [-1, 0, 2, 1 << 29])
def test_a_count_that_the_body_cannot_hold_is_refused(count: int) -> None:
    assert not accepted(build_body([b"one"]), count)


def test_the_limit_is_that_of_the_largest_record_not_of_the_body() -> None:
    body = build_body([b"x" * 10] * 5)
    check_body(body, 5, 10)
    with pytest.raises(DLedgerError) as refused:
        check_body(body, 5, 9)
    assert refused.value.code is Code.RECORD_TOO_LARGE


def test_checking_large_batches_leaves_nothing_in_memory() -> None:
    tracemalloc.start()
    for count in range(MAX_KEPT_SIGNS + 1, MAX_KEPT_SIGNS + 33):
        check_body(build_body([b""] * count), count, MAX_RECORD_BYTES)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 4 * MAX_KEPT_SIGNS


def test_the_last_sum_of_a_large_body_is_its_checksum_and_small_ones_have_none() -> None:
    body = bytes(range(256)) * (LARGE_BODY_BYTES // 256) + b"end"
    sums = body_sums(body)
    assert sums is not None
    assert sums[-1] == crc32c(body)
    assert [crc32c(body[: PIECE_BYTES * (number + 1)]) for number in range(len(sums))] == list(sums)
    assert body_sums(body[: LARGE_BODY_BYTES - 1]) is None
