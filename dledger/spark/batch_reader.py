"""The batch source: a range is planned once, then read by tasks, each on its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from dledger.common.errors import DLedgerError
from dledger.spark.columns import record_batches
from dledger.spark.filters import Bounds, narrow
from dledger.spark.origin import Origin, is_trimmed, opened, spare_collections
from dledger.spark.plan import Split, plan_splits, resolve_range
from dledger.spark.refusal import in_one_sentence
from dledger.spark.source_options import ReadOptions


class BatchReader(DataSourceReader):
    """Reads a range of committed records."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        """At least one: Spark reads something also if nothing is planned."""
        options = self._options
        with in_one_sentence(), opened(options.place) as origin:
            start, end = resolve_range(options, origin)
            segments = origin.segments()
            start, end = self._bounds.clip(start, end, origin, segments)
            return plan_splits(start, end, segments, options.min_partitions) or [Split(start, start)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The split's records, as Arrow."""
        assert isinstance(partition, Split)
        yield from read_split(self._options, partition)


class PushingBatchReader(BatchReader):
    """A ``BatchReader`` with filters on index and timestamp pushed down; Spark looks at each row again."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  # Spark's name
        """Narrows the range. All are given back: a range is as coarse as the log's clock."""
        self._bounds = narrow(filters)
        return iter(filters)


def read_split(options: ReadOptions, split: Split) -> Iterator[pa.RecordBatch]:
    """The split's records, as Arrow. If some were trimmed since the plan: an error, or the rest."""
    at, end = split.start, split.end
    if at >= end:
        return
    with in_one_sentence(), opened(options.place) as origin:
        spare_collections()
        try:
            for batch in _batches(options, origin, at, end):
                yield batch
                at += batch.num_rows
            return
        except DLedgerError as refusal:
            if options.fail_on_data_loss or not is_trimmed(refusal):
                raise
        # Behind what was given already: the node that says where the log begins may be one that trims later.
        at = max(at, origin.bounds()[0])
        if at < end:
            yield from _batches(options, origin, at, end)


def _batches(options: ReadOptions, origin: Origin, start: int, end: int) -> Iterator[pa.RecordBatch]:
    return record_batches(origin.read(start, end), options.columns, options.place.group, start=start, end=end)
