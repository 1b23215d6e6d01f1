"""What the client hands back beside ``Ack`` and ``Entry``: the acks of many records, and a batch as it was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import overload

from dledger.common.batch import Buffer, build_body, record_at, records_of
from dledger.common.types import Ack, Entry

FORGOTTEN_INDEX = -1
"""The index of records appended too long ago for the log to know their place any more."""

_make_ack = partial(tuple.__new__, Ack)


@dataclass(frozen=True, slots=True)
class AckSpan:
    """``count`` records that were appended as one batch, from ``first_index`` on."""

    first_index: int
    count: int
    term: int
    timestamp_ms: int


class Acks(Sequence[Ack]):
    """The acks of one ``append_many``, in the order of its records; each is made when it is asked for.

    One span, so indexes without a gap, unless the call exceeded the limit of one batch.
    """

    __slots__ = ("_count", "spans")

    def __init__(self, spans: Sequence[AckSpan]) -> None:
        self.spans = tuple(spans)
        self._count = sum(span.count for span in self.spans)

    @property
    def first_index(self) -> int:
        """The index of the first record."""
        return self.spans[0].first_index

    @property
    def last_index(self) -> int:
        """The index of the last record."""
        return self[-1].index

    @property
    def term(self) -> int:
        """The term of the first record."""
        return self.spans[0].term

    @property
    def timestamp_ms(self) -> int:
        """The log's time of the first record, in ms since the epoch."""
        return self.spans[0].timestamp_ms

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Ack]:
        for span in self.spans:
            yield from acks_of(span.first_index, span.count, span.term, span.timestamp_ms)

    @overload
    def __getitem__(self, ordinal: int) -> Ack: ...

    @overload
    def __getitem__(self, ordinal: slice) -> list[Ack]: ...

    def __getitem__(self, ordinal: int | slice) -> Ack | list[Ack]:
        if isinstance(ordinal, slice):
            return list(self)[ordinal]
        left = range(self._count)[ordinal]
        for span in self.spans:
            if left < span.count:
                return Ack(_indexes(span.first_index, span.count)[left], span.term, span.timestamp_ms)
            left -= span.count
        raise IndexError(ordinal)

    def __repr__(self) -> str:
        return f"Acks(first_index={self.first_index}, count={self._count}, term={self.term})"


def acks_of(first_index: int, count: int, term: int, timestamp_ms: int) -> Iterator[Ack]:
    """The acks of one batch, made at C speed."""
    return map(_make_ack, zip(_indexes(first_index, count), repeat(term), repeat(timestamp_ms)))


def _indexes(first_index: int, count: int) -> Sequence[int]:
    if first_index == FORGOTTEN_INDEX:
        return (FORGOTTEN_INDEX,) * count
    return range(first_index, first_index + count)


@dataclass(frozen=True, slots=True)
class Batch:
    """Committed records with consecutive indexes from ``base_index`` on, appended together in ``term``.

    ``body`` is as drawn in dledger.common.batch: the two buffers of an Arrow binary array. Its checksum has been
    verified. It is read-only, and may be a view of the message that brought it, of about 1 MiB: ``bytes(batch.body)``
    lets go of the message.
    """

    base_index: int
    count: int
    term: int
    timestamp_ms: int
    body: Buffer
    producer_id: int = 0
    """The producer that appended it; 0: none."""
    producer_epoch: int = 0
    base_sequence: int = 0
    """The producer's sequence of the first record."""

    @property
    def end_index(self) -> int:
        """The index after the last record."""
        return self.base_index + self.count

    def records(self) -> list[bytes]:
        """The records' bytes, in order."""
        return records_of(self.body, self.count)

    def record(self, index: int) -> bytes:
        """The record at a log index of this batch. Raises IndexError."""
        if not self.base_index <= index < self.end_index:
            raise IndexError(index)
        return record_at(self.body, self.count, index - self.base_index)

    def entries(self) -> Iterator[Entry]:
        """The records as entries, in order."""
        indexes = range(self.base_index, self.end_index)
        return map(Entry, indexes, repeat(self.term), repeat(self.timestamp_ms), self.records())

    def clipped(self, start: int, end: int | None) -> Batch:
        """The part within ``start`` … ``end`` (exclusive), which must not be empty."""
        first = max(start, self.base_index)
        last = self.end_index if end is None else min(end, self.end_index)
        if first == self.base_index and last == self.end_index:
            return self
        assert first < last, "a batch that lies outside of the range asked is dropped, not clipped"
        kept = self.records()[first - self.base_index : last - self.base_index]
        sequence = self.base_sequence + first - self.base_index
        return replace(self, base_index=first, count=len(kept), body=build_body(kept), base_sequence=sequence)


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """Records ``base_index`` to ``end_index`` (exclusive), in one file of the node that was asked."""

    base_index: int
    end_index: int
    size_bytes: int
    """What their frames take."""
    last_timestamp_ms: int
    """Of the newest."""
