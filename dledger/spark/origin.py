"""Where records come from: a cluster, by the client, or a copy of one node's files. One interface, blocking.

Opened where it is used, in the planner or in a task: neither channels nor files outlive a fork or a pickle.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from dledger.client import Batch, BlockingLog, connect_blocking
from dledger.common.errors import Code, ConfigError, DLedgerError, OutOfRange, Unavailable
from dledger.common.types import Consistency, is_key_of
from dledger.log.copy import LogCopy
from dledger.log.frame.frame import Frame
from dledger.spark.columns import Records
from dledger.spark.source_options import Place


@cache
def spare_collections() -> None:
    """Once in a worker's life. PySpark's worker collects garbage after every task, and the modules imported for the
    first one stay. Looking at all of them again had taken 40 ms of each task."""
    gc.collect()
    gc.freeze()


class Span(NamedTuple):
    """Records ``start`` to ``end`` (exclusive), and about how many bytes they are."""

    start: int
    end: int
    size_bytes: int
    last_timestamp_ms: int


class Origin(Protocol):
    """A log that can be read."""

    @property
    def log_id(self) -> str:
        """Names this log among all there ever were; empty if the name is not known, as of a copy of files."""

    def bounds(self) -> tuple[int, int]:
        """The first index, and one past the last committed one."""

    def segments(self) -> list[Span]:
        """How the records are cut into files, ascending."""

    def timestamp_ms(self, index: int) -> int:
        """Of one committed record."""

    def read(self, start: int, end: int) -> Iterator[Records]:
        """Frames that hold the records ``start`` to ``end``, clipped to them."""


@contextmanager
def opened(place: Place) -> Iterator[Origin]:
    """Raises CONFIG_ERROR, and Unavailable when no node answers."""
    if place.path:
        yield CopyOrigin(place)
        return
    named = (place.read_from,) if ":" in place.read_from else ()  # an address is known by it without being asked for
    endpoints = (*place.endpoints, *named)
    with connect_blocking(
        endpoints, group=place.group, cluster_id=place.cluster_id, timeout_ms=place.timeout_ms
    ) as log:
        yield ClusterOrigin(log, place)


class ClusterOrigin:
    """The log of a cluster, asked of the leader, of any node, or of one."""

    def __init__(self, log: BlockingLog, place: Place) -> None:
        self._log = log
        self._node = None if place.read_from in ("leader", "any") else place.read_from
        self._consistency = Consistency.LINEARIZABLE if place.read_from == "leader" else Consistency.COMMITTED
        self._in_turn = [self._consistency]
        """The consistencies with which a range is asked for, in turn; the next one fills up the gaps of the one
        before."""
        if place.read_from == "any":
            self._in_turn.append(Consistency.LINEARIZABLE)

    @cached_property
    def log_id(self) -> str:
        return self._log.metadata().log_id

    def bounds(self) -> tuple[int, int]:
        """Of the node named: as far as it knows of commits."""
        if self._node is None:
            first_index, commit_index = self._log.bounds(self._consistency)
            return first_index, commit_index + 1
        status = self._log.status()
        node = next((each for each in status.nodes if self._node in (each.id, each.address)), None)
        if node is None or not node.reachable:
            raise ConfigError(f"readFrom names {self._node}, which does not answer: name another node, or any")
        return node.first_index, node.commit_index + 1

    def segments(self) -> list[Span]:
        spans = self._log.segments(node=self._node)
        return [Span(each.base_index, each.end_index, each.size_bytes, each.last_timestamp_ms) for each in spans]

    def timestamp_ms(self, index: int) -> int:
        try:
            return self._log.get(index, self._consistency, node=self._node).timestamp_ms
        except OutOfRange as refusal:
            if self._consistency is Consistency.LINEARIZABLE or is_trimmed(refusal):
                raise
        return self._log.get(index, Consistency.LINEARIZABLE).timestamp_ms

    def read(self, start: int, end: int) -> Iterator[Records]:
        """The planner of the range knew that it is committed. Another node may not know yet, and ends its answer early
        without an error: the leader is asked for the rest."""
        at = start
        for consistency in self._in_turn:
            try:
                for batch in self._batches(at, end, consistency):
                    yield batch
                    at = batch.end_index
            except OutOfRange as refusal:
                if consistency is Consistency.LINEARIZABLE or is_trimmed(refusal):
                    raise
            if at >= end:
                return
        who = self._node or "the leader"
        raise Unavailable(f"{who} knew that records {at} to {end - 1} are committed, and does not any more: read again")

    def _batches(self, start: int, end: int, consistency: Consistency) -> Iterator[Batch]:
        node = self._node if consistency is Consistency.COMMITTED else None
        batches = self._log.read_batches(start, end, consistency=consistency, node=node)
        with closing(batches):  # type: ignore[type-var]  # a generator, closed with its stream
            yield from batches


class CopiedRecords(NamedTuple):
    """A frame of a file, as records."""

    base_index: int
    count: int  # type: ignore[assignment]  # a field, not tuple.count
    term: int
    timestamp_ms: int
    body: memoryview
    producer_id: int
    producer_epoch: int
    base_sequence: int


class CopyOrigin:
    """The files of one node."""

    log_id = ""

    def __init__(self, place: Place) -> None:
        self._copy = LogCopy(Path(place.path), place.group)
        if not is_key_of(self._copy.group, place.group):
            raise ConfigError(
                f"{place.path} holds the group {self._copy.group!r}, not {place.group!r}: give the option group"
            )

    def bounds(self) -> tuple[int, int]:
        return self._copy.first_index, self._copy.end_index

    def segments(self) -> list[Span]:
        return [Span(*each) for each in self._copy.spans()]

    def timestamp_ms(self, index: int) -> int:
        return next(iter(self._copy.read(index, index + 1))).header.timestamp_ms

    def read(self, start: int, end: int) -> Iterator[Records]:
        return map(_records_of, self._copy.read(start, end))


def _records_of(frame: Frame) -> CopiedRecords:
    header = frame.header
    return CopiedRecords(
        header.base_index,
        header.count,
        header.term,
        header.timestamp_ms,
        memoryview(frame.body),
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def index_at(origin: Origin, timestamp_ms: int, bounds: tuple[int, int], segments: Sequence[Span]) -> int:
    """The first record at or after that time, by the log's clock (it never runs backwards): one past the last if there
    is none. Asks about twenty times."""
    low, high = bounds
    for span in segments:
        if span.end <= high and span.last_timestamp_ms < timestamp_ms:
            low = max(low, span.end)
    while low < high:
        middle = (low + high) // 2
        if origin.timestamp_ms(middle) < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low


def is_trimmed(refusal: DLedgerError) -> bool:
    """Whether what was asked for is not in the log any more."""
    return refusal.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN
