"""The records of each task: splits follow segments, as each is one file and one run of it is read in order.

::

    segments   |····0····|······1······|···2···|·3·|
    splits     [    a    |      b      |   c       ]      small ones together, up to SPLIT_BYTES
                         [  b1  |  b2  ]                  minPartitions: the largest are halved
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from pyspark.sql.datasource import InputPartition

from dledger.common.errors import Code, error
from dledger.spark.origin import Origin, Span, index_at
from dledger.spark.source_options import EARLIEST, LATEST, ReadOptions

SPLIT_BYTES = 64 << 20
"""About the size that one task reads: any task costs Spark 50 ms."""


@dataclass
class Split(InputPartition):
    """One task's records: ``start`` to ``end`` (exclusive)."""

    start: int
    end: int

    def __repr__(self) -> str:
        return f"Split({self.start}, {self.end})"


def resolve_range(options: ReadOptions, origin: Origin) -> tuple[int, int]:
    """The records of a batch read: from the first to one past the last.

    Raises OutOfRange for a bound outside the log; with failOnDataLoss off the rest of the range is read.
    """
    bounds = first, end = origin.bounds()
    wanted_start = _resolve(options.starting, options.starting_timestamp_ms, origin, bounds)
    wanted_end = _resolve(options.ending, options.ending_timestamp_ms, origin, bounds)
    if options.fail_on_data_loss:
        check_there("startingOffsets", wanted_start, bounds)
        check_there("endingOffsets", wanted_end, bounds)
    start = min(max(wanted_start, first), end)
    return start, max(start, min(wanted_end, end))


def resolve_start(options: ReadOptions, origin: Origin) -> int:
    """Where a stream begins. Raises as ``resolve_range``."""
    bounds = origin.bounds()
    start = _resolve(options.starting, options.starting_timestamp_ms, origin, bounds)
    if options.fail_on_data_loss:
        check_there("startingOffsets", start, bounds)
    return min(max(start, bounds[0]), bounds[1])


def _resolve(offset: int | str, timestamp_ms: int | None, origin: Origin, bounds: tuple[int, int]) -> int:
    if timestamp_ms is not None:
        return index_at(origin, timestamp_ms, bounds, origin.segments())
    if offset == EARLIEST:
        return bounds[0]
    return bounds[1] if offset == LATEST else int(offset)


def check_there(what: str, index: int, bounds: tuple[int, int]) -> None:
    """Raises OutOfRange if ``index`` was trimmed, or is not there yet."""
    first, end = bounds
    if index < first:
        raise error(
            Code.INDEX_LESS_THAN_LOCAL_BEGIN,
            f"{what} is {index}, but the log begins at {first}: the records before were trimmed; begin there, or set "
            "failOnDataLoss to false to read what is left",
            first_index=first,
        )
    if index > end:
        raise error(
            Code.INDEX_OUT_OF_RANGE,
            f"{what} is {index}, but the last committed record is {end - 1}: name an index up to {end}, or latest",
            commit_index=end - 1,
        )


def plan_splits(start: int, end: int, segments: Sequence[Span], min_partitions: int) -> list[Split]:
    """Covers the range without a gap, in order; at least ``min_partitions`` where there are so many records."""
    pieces = _gathered(_clipped(start, end, segments))
    heap = [(-size_bytes, first, last) for first, last, size_bytes in pieces]
    heapify(heap)
    while heap and len(heap) < min_partitions:
        size, first, last = heappop(heap)
        if last - first < 2:
            heappush(heap, (0, first, last))
            if heap[0][0] == 0:
                break
            continue
        middle = (first + last) // 2
        heappush(heap, (size / 2, first, middle))
        heappush(heap, (size / 2, middle, last))
    return [Split(first, last) for _, first, last in sorted(heap, key=lambda each: each[1])]


def _clipped(start: int, end: int, segments: Iterable[Span]) -> list[tuple[int, int, float]]:
    """The range cut by segments: each piece with its start, its end, and about how many bytes it has."""
    pieces: list[tuple[int, int, float]] = []
    at = start
    for span in segments:
        last = min(span.end, end)
        if last > at:
            share = (last - at) / max(1, span.end - span.start)
            pieces.append((at, last, span.size_bytes * min(1.0, share)))
            at = last
    if at < end:  # appended since the segments were listed
        pieces.append((at, end, 0.0))
    return pieces


def _gathered(pieces: Iterable[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Small neighbours together."""
    gathered: list[tuple[int, int, float]] = []
    for start, end, size_bytes in pieces:
        if gathered and gathered[-1][2] + size_bytes <= SPLIT_BYTES:
            start, _, before = gathered.pop()  # noqa: PLW2901  # it grows to the left
            size_bytes += before  # noqa: PLW2901
        gathered.append((start, end, size_bytes))
    return gathered
