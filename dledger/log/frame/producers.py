"""What the log knows of its producers: how a retry is told from a new batch, on every node alike.

Everything here follows from the headers of the frames alone, in their order, so every node that has the same frames
knows the same producers. What expires, expires by the log's timestamps and by counts, never by a local clock.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dledger.common.config import MAX_STREAM_BATCHES
from dledger.common.errors import Code, error, quoted
from dledger.log.frame.frame import FrameHeader
from dledger.v1.storage_pb2 import ProducerRecord

RANGES_KEPT = MAX_STREAM_BATCHES
"""A batch older than a producer's last so many is REPEATED_REQUEST: surely appended, its index forgotten."""
MAX_ANONYMOUS = 10_000
"""Producers without a name: the least recently used one is forgotten when another comes."""
MAX_NAMED = 10_000
"""Producers with a name. A further name is refused, rather than a known one forgotten: a known name is the promise that
a retry appends nothing twice."""
PRODUCER_EXPIRY_MS = 7 * 24 * 3600 * 1000
"""A producer that wrote nothing for so long, by the log's timestamps, goes."""

# One range, in memory and on disk (little-endian): seven u64,
#   base_sequence | count | base_index | position | term | timestamp_ms | body_crc
_FIELDS = 7
_KEPT = RANGES_KEPT * _FIELDS
_TRIM_AT = 2 * _KEPT
_NEVER = 1 << 64


class NamedProducer(NamedTuple):
    """The producer behind a name, and the epoch in which it wrote last."""

    id: int
    epoch: int


class KnownRange(NamedTuple):
    """One batch that the log holds already: its place, and the fields that identify it."""

    base_sequence: int
    count: int  # type: ignore[assignment]  # a field, not tuple.count
    base_index: int
    position: int
    term: int
    timestamp_ms: int
    body_crc: int


class _Producer:
    """One producer. ``ranges`` holds at least the last ``RANGES_KEPT`` of its epoch; only those are looked at.

    Changed only while no freeze is newer than ``frozen``; copied first otherwise.
    """

    __slots__ = ("epoch", "frozen", "id", "last_timestamp_ms", "name", "next_sequence", "ranges")

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        *,
        name: str,
        next_sequence: int,
        timestamp_ms: int,
        ranges: array[int],
        frozen: int,
    ) -> None:
        self.id = producer_id
        self.name = name
        self.frozen = frozen
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.last_timestamp_ms = timestamp_ms
        self.ranges = ranges

    @classmethod
    def new(cls, producer_id: int, epoch: int, timestamp_ms: int, frozen: int, name: str = "") -> _Producer:
        ranges = array("Q")
        return cls(
            producer_id, epoch, name=name, next_sequence=0, timestamp_ms=timestamp_ms, ranges=ranges, frozen=frozen
        )

    def __str__(self) -> str:
        """The producer as a refusal names it: by its user's name for it, else by the number that the log gave."""
        return f"producer {quoted(self.name) if self.name else self.id}"

    def kept(self) -> array[int]:
        return self.ranges[-_KEPT:]

    def thawed(self, frozen: int) -> _Producer:
        return _Producer(
            self.id,
            self.epoch,
            name=self.name,
            next_sequence=self.next_sequence,
            timestamp_ms=self.last_timestamp_ms,
            ranges=self.kept(),
            frozen=frozen,
        )

    def record(self) -> ProducerRecord:
        return ProducerRecord(
            id=self.id,
            epoch=self.epoch,
            next_sequence=self.next_sequence,
            last_timestamp_ms=self.last_timestamp_ms,
            ranges=_little_endian(self.kept()).tobytes(),
            name=self.name,
        )


_Table = OrderedDict[int, _Producer]


class Producers:
    """The producers of one log. Those with a name stand apart: anonymous ones never push them out. Each process that
    appends is an anonymous one. Invariants: each table is ordered by last use; no producer has expired at the last
    frame's timestamp; ``_ids`` has exactly the named ones."""

    def __init__(self) -> None:
        self._named: _Table = OrderedDict()
        self._anonymous: _Table = OrderedDict()
        self._ids: dict[str, int] = {}
        self._expires_at_ms = _NEVER  # no producer expires before
        self._frozen = 0

    def __len__(self) -> int:
        return len(self._named) + len(self._anonymous)

    def __contains__(self, producer_id: int) -> bool:
        return self._get(producer_id) is not None

    @property
    def named_count(self) -> int:
        """How many have a name."""
        return len(self._named)

    def _get(self, producer_id: int) -> _Producer | None:
        return self._anonymous.get(producer_id) or self._named.get(producer_id)

    def _table_of(self, producer: _Producer) -> _Table:
        return self._named if producer.name else self._anonymous

    def check_room(self, name: str) -> None:
        """Raises PRODUCERS_FULL if no further name is kept."""
        if name not in self._ids and len(self._named) >= MAX_NAMED:
            raise error(
                Code.PRODUCERS_FULL,
                f"the log keeps the names of {MAX_NAMED} producers, and has as many: use a name again, or wait until "
                "one is forgotten, seven days after its last append",
            )

    def named(self, name: str) -> NamedProducer | None:
        """The producer of that name, None when there is none, or none any more."""
        producer = self._named[self._ids[name]] if name in self._ids else None
        return NamedProducer(producer.id, producer.epoch) if producer is not None else None

    def register(self, producer_id: int, timestamp_ms: int, name: str = "") -> None:
        """The log handed out ``producer_id``. If two asked for one name at a time, the first has it: the entry of that
        producer stays."""
        if name in self._ids:
            self._used(self._ids[name], timestamp_ms)
            return
        if name:
            self._ids[name] = producer_id
        self._touch(producer_id, _Producer.new(producer_id, 0, timestamp_ms, self._frozen, name), timestamp_ms)

    def record(self, header: FrameHeader) -> None:
        """A data frame of a producer was appended."""
        _, _, _, body_crc, position, term, index, count, _, timestamp_ms, key, sequence, epoch, _, _ = header
        producer = self._get(key)
        if producer is None or producer.epoch != epoch:
            name = producer.name if producer is not None else ""
            producer = _Producer.new(key, epoch, timestamp_ms, self._frozen, name)
            self._touch(key, producer, timestamp_ms)
        else:
            producer = self._used(key, timestamp_ms)
        ranges = producer.ranges
        ranges.extend((sequence, count, index, position, term, timestamp_ms, body_crc))
        if len(ranges) >= _TRIM_AT:
            del ranges[:-_KEPT]
        producer.next_sequence = sequence + count

    def _used(self, producer_id: int, timestamp_ms: int) -> _Producer:
        producer = self._get(producer_id)
        assert producer is not None, f"producer {producer_id} is not known"
        table = self._table_of(producer)
        if producer.frozen != self._frozen:
            producer = table[producer_id] = producer.thawed(self._frozen)
        table.move_to_end(producer_id)
        producer.last_timestamp_ms = timestamp_ms
        return producer

    def forgets_at(self, timestamp_ms: int) -> bool:
        """Whether a frame of that time may have a producer forgotten for its silence."""
        return timestamp_ms >= self._expires_at_ms

    def expire(self, timestamp_ms: int) -> None:
        """Forgets producers that wrote nothing for too long. ``timestamp_ms`` is the log's time."""
        if timestamp_ms < self._expires_at_ms:
            return
        ends_ms = [self._expire(table, timestamp_ms) for table in (self._named, self._anonymous)]
        self._expires_at_ms = min(ends_ms)

    def _expire(self, table: _Table, timestamp_ms: int) -> int:
        """When the next one of ``table`` expires."""
        while table:
            oldest = next(iter(table.values()))
            expires_at_ms = oldest.last_timestamp_ms + PRODUCER_EXPIRY_MS
            if timestamp_ms < expires_at_ms:
                return expires_at_ms
            self._forget_oldest(table)
        return _NEVER

    def check(
        self, producer_id: int, producer_epoch: int, base_sequence: int, count: int, body_crc: int
    ) -> KnownRange | None:
        """None: a new batch, in order, to be appended. A ``KnownRange``: the log holds exactly this batch.

        Judged against the last frame appended, committed or not. Raises UNKNOWN_PRODUCER: never handed out, or
        forgotten. Raises PRODUCER_FENCED: the producer has a higher epoch. Raises OUT_OF_ORDER: a batch before this one
        is missing; the producer resends from its oldest unacknowledged batch. Raises SEQUENCE_CONFLICT: other bytes or
        bounds under known sequences. Raises REPEATED_REQUEST: older than the ranges kept.
        """
        producer = self._get(producer_id)
        if producer is None:
            raise error(
                Code.UNKNOWN_PRODUCER,
                f"producer {producer_id} is not known to the log, or no longer: register a new producer",
            )
        if producer_epoch < producer.epoch:
            raise error(
                Code.PRODUCER_FENCED,
                f"{producer} has epoch {producer.epoch}: an append of epoch {producer_epoch} is refused; "
                "register a new producer",
            )
        expected = producer.next_sequence if producer_epoch == producer.epoch else 0
        if base_sequence == expected:
            return None
        if base_sequence > expected:
            raise error(
                Code.OUT_OF_ORDER,
                f"{producer} is expected to go on at sequence {expected}, not {base_sequence}: resend from "
                "the oldest batch that is not acknowledged",
                expected_sequence=expected,
            )
        return _find(producer, base_sequence, count, body_crc)

    def freeze(self) -> FrozenProducers:
        """As they are now, for any thread. Costs a pointer each; a producer that writes next is copied, once."""
        self._frozen += 1
        return FrozenProducers([*self._named.values(), *self._anonymous.values()])

    def decode(self, records: Iterable[ProducerRecord]) -> None:
        """Takes over what ``FrozenProducers.encode`` gave."""
        for record in records:
            ranges = array("Q")
            ranges.frombytes(record.ranges)
            producer = _Producer(
                record.id,
                record.epoch,
                name=record.name,
                next_sequence=record.next_sequence,
                timestamp_ms=record.last_timestamp_ms,
                ranges=_little_endian(ranges),
                frozen=self._frozen,
            )
            self._table_of(producer)[record.id] = producer
            if record.name:
                self._ids[record.name] = record.id
            self._expires_at_ms = min(self._expires_at_ms, record.last_timestamp_ms + PRODUCER_EXPIRY_MS)

    def _touch(self, producer_id: int, producer: _Producer, timestamp_ms: int) -> None:
        table = self._table_of(producer)
        table[producer_id] = producer
        table.move_to_end(producer_id)
        self._expires_at_ms = min(self._expires_at_ms, timestamp_ms + PRODUCER_EXPIRY_MS)
        if len(table) > (MAX_NAMED if producer.name else MAX_ANONYMOUS):
            self._forget_oldest(table)

    def _forget_oldest(self, table: _Table) -> None:
        _, forgotten = table.popitem(last=False)
        if forgotten.name:
            del self._ids[forgotten.name]


class FrozenProducers:
    """What ``Producers.freeze`` gave. Never changes."""

    def __init__(self, producers: list[_Producer]) -> None:
        self._producers = producers

    def encode(self) -> Iterator[ProducerRecord]:
        """A record of each producer: those with a name first; of each kind, the least recently used first."""
        for producer in self._producers:
            yield producer.record()


def _find(producer: _Producer, base_sequence: int, count: int, body_crc: int) -> KnownRange:
    kept = producer.kept()
    oldest = kept[0] if kept else producer.next_sequence
    if base_sequence + count <= oldest:
        raise error(
            Code.REPEATED_REQUEST,
            f"sequence {base_sequence} of {producer} was appended long ago; its index is forgotten",
        )
    for at in range(len(kept) - _FIELDS, -1, -_FIELDS):
        if kept[at] == base_sequence:
            known = KnownRange._make(kept[at : at + _FIELDS])
            if known.count == count and known.body_crc == body_crc:
                return known
            break
    raise error(
        Code.SEQUENCE_CONFLICT,
        f"sequences {base_sequence} to {base_sequence + count - 1} of {producer} were appended with other bytes or "
        "other bounds: a retry must send the same batch again",
    )


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
