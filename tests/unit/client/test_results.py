from __future__ import annotations

import pytest

from dledger.client.results import Acks, AckSpan, Batch
from dledger.common.batch import build_body
from dledger.common.types import Ack, Entry

RECORDS = [b"a", b"", b"ccc", b"dd"]
BATCH = Batch(10, 4, 2, 99, build_body(RECORDS))


def test_acks_are_a_sequence_over_their_spans() -> None:
    acks = Acks([AckSpan(5, 2, 1, 10), AckSpan(9, 3, 2, 20)])
    assert [ack.index for ack in acks] == [5, 6, 9, 10, 11]
    assert acks[2] == Ack(9, 2, 20)
    assert acks[-1] == Ack(11, 2, 20)
    assert acks[1:3] == [Ack(6, 1, 10), Ack(9, 2, 20)]
    assert (len(acks), acks.first_index, acks.last_index, acks.term, acks.timestamp_ms) == (5, 5, 11, 1, 10)
    with pytest.raises(IndexError):
        acks[5]


def test_a_batch_gives_its_records_by_log_index() -> None:
    assert BATCH.records() == RECORDS
    assert BATCH.record(12) == b"ccc"
    assert list(BATCH.entries())[3] == Entry(13, 2, 99, b"dd")
    for outside in (9, 14):
        with pytest.raises(IndexError):
            BATCH.record(outside)


@pytest.mark.parametrize(("start", "end"), [(0, None), (10, 14), (11, None), (11, 13), (0, 11), (13, 99)])
def test_clipping_keeps_what_lies_in_the_range(start: int, end: int | None) -> None:
    clipped = BATCH.clipped(start, end)
    expected = [entry for entry in BATCH.entries() if start <= entry.index and (end is None or entry.index < end)]
    assert list(clipped.entries()) == expected


def test_a_batch_within_the_range_is_not_copied() -> None:
    assert BATCH.clipped(0, 14) is BATCH
