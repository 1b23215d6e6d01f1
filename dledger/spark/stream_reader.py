"""The streaming source: what was committed since the last micro-batch.

Spark notes an offset before it runs the micro-batch up to it. Ours says how that is cut into tasks too. So a
micro-batch that is run again is cut as before, even if the segments have changed. Its sink sees the same rows in the
same partitions.

::

    {"group": "default", "log": "9d5e…/default.0", "index": 5000, "cuts": "2000,4000"}
                                one past the last record, and where its second and third task began

An offset names its log, too. A checkpoint of another log is refused: of a cluster founded anew, or of a group deleted
and made again. Its index means another record there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from dledger.common.errors import Code, ConfigError, error
from dledger.spark.batch_reader import read_split
from dledger.spark.origin import Origin, Span, opened
from dledger.spark.plan import Split, check_there, plan_splits, resolve_start
from dledger.spark.refusal import in_one_sentence
from dledger.spark.source_options import ReadOptions

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process beside the driver for as long as the query; its connection does, too."""

    def __init__(self, parse: Callable[[], ReadOptions]) -> None:
        """``parse`` is called by what Spark calls first: a refusal while a reader is made would be lost in PySpark."""
        self._parse = parse
        self._stack: ExitStack | None = None
        self._origin: Origin | None = None
        self._target: int | None = None
        """With the trigger availableNow: where the log ended when the query began."""
        self._newest: int | None = None
        """Where the log ended when it was last looked at."""

    @cached_property
    def _options(self) -> ReadOptions:
        return self._parse()

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name
        """By startingOffsets or startingTimestamp."""
        with in_one_sentence():
            return self._offset(resolve_start(self._options, self._open()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """By maxOffsetsPerTrigger and maxBytesPerTrigger; where both are given ``latestOffset`` keeps both."""
        with in_one_sentence():
            options = self._options
        if options.max_offsets_per_trigger:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is appended from now on is for another run."""
        with in_one_sentence():
            self._target = self._open().bounds()[1]

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next micro-batch goes; ``start`` itself where there is nothing new."""
        with in_one_sentence():
            begin, origin = self._index(start), self._open()
            bounds = origin.bounds()
            self._newest = bounds[1]
            end = bounds[1] if self._target is None else min(self._target, bounds[1])
            self._check_continues(begin, bounds)
            if end <= begin:
                return start
            segments = origin.segments()
            end = self._admit(begin, end, segments, limit)
            splits = plan_splits(begin, end, segments, self._options.min_partitions)
            return self._offset(end, ",".join(str(split.start) for split in splits[1:]))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """The log's end: with the processed offset, it gives the lag in the query's progress."""
        return None if self._newest is None else self._offset(self._newest)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """As the offset says."""
        with in_one_sentence():
            begin, stop = self._index(start), self._index(end)
        if begin >= stop:
            return []
        cuts = [begin, *(int(cut) for cut in str(end.get("cuts", "")).split(",") if cut), stop]
        return [Split(first, last) for first, last in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        assert isinstance(partition, Split)
        return read_split(self._options, partition)

    def stop(self) -> None:
        """May never be called."""
        if self._stack is not None:
            self._stack.close()
            self._stack = self._origin = None

    # Inside -----------------------------------------------------------------------------------------------------

    def _open(self) -> Origin:
        """A copy of files is looked at anew each time: it grows when it is not a copy."""
        if self._origin is None or self._options.place.path:
            self.stop()
            self._stack = ExitStack()
            self._origin = self._stack.enter_context(opened(self._options.place))
        return self._origin

    def _offset(self, index: int, cuts: str = "") -> Offset:
        return {"group": self._options.place.group, "log": self._open().log_id, "index": index, "cuts": cuts}

    def _index(self, offset: Offset) -> int:
        group = self._options.place.group
        if offset.get("group") != group:
            raise ConfigError(f"the checkpoint is of group {offset.get('group')!r}, not {group!r}: use another one")
        was, now = offset.get("log", ""), self._open().log_id
        if was and now and was != now:
            raise ConfigError(
                f"the checkpoint is of another log ({was}) than the one at the endpoints ({now}), and its index means "
                "nothing there: begin with a new checkpoint, or name the right endpoints"
            )
        return int(offset["index"])

    def _check_continues(self, begin: int, bounds: tuple[int, int]) -> None:
        if begin > bounds[1] and self._options.place.read_from == "leader":
            raise error(
                Code.INDEX_OUT_OF_RANGE,
                f"the checkpoint stands at index {begin}, but the log ends at {bounds[1]}: it is another log, or it "
                "was lost; begin with a new checkpoint",
            )
        if self._options.fail_on_data_loss and begin < bounds[0]:
            check_there("the checkpoint's index", begin, bounds)

    def _admit(self, begin: int, end: int, segments: Sequence[Span], limit: ReadLimit) -> int:
        """The end of a micro-batch, kept below its limit."""
        if isinstance(limit, ReadAllAvailable):
            return end
        most_rows, most_bytes = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        if most_rows:
            end = min(end, begin + most_rows)
        if most_bytes:
            end = min(end, index_after_bytes(begin, most_bytes, segments))
        return end


def index_after_bytes(start: int, size_bytes: int, segments: Sequence[Span]) -> int:
    """Where about ``size_bytes`` of records from ``start`` on end, taking a segment's records for equally large."""
    left = float(size_bytes)
    at = start
    for span in segments:
        if span.end <= at:
            continue
        per_record = span.size_bytes / max(1, span.end - span.start)
        there = (span.end - at) * per_record
        if there > left:
            return max(start + 1, at + int(left / max(per_record, 1.0)))
        left -= there
        at = span.end
    return max(start + 1, at)
