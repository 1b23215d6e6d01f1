"""``readStream``: every record once, in micro-batches that are the same when they are run again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dledger.spark.origin import Span
from dledger.spark.plan import Split
from dledger.spark.source_options import ReadOptions
from dledger.spark.stream_reader import StreamReader, index_after_bytes
from tests.spark.clusters import Cluster, running
from tests.spark.test_sink import forget_last_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = [b"record %d" % number for number in range(5_000)]


class Run:
    """One run of a query over everything that is there."""

    def __init__(self, spark: SparkSession, cluster: Cluster, checkpoint: Path, **options: Any) -> None:
        frame = spark.readStream.format("dledger").option("dledger.endpoints", cluster.endpoints)
        self.batches: list[tuple[int, list[int]]] = []
        """The number of each micro-batch, and the indexes of its rows."""
        self.query = (
            frame.options(**{"startingOffsets": "earliest", **options})
            .load()
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def _take(self, frame: DataFrame, number: int) -> None:
        self.batches.append((number, [row["index"] for row in frame.select("index").collect()]))

    def finished(self) -> Run:
        self.query.awaitTermination()
        return self

    @property
    def indexes(self) -> list[int]:
        return [index for _, indexes in self.batches for index in indexes]


@pytest.fixture
def run(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Callable[..., Run]:
    cluster.append(RECORDS)
    return lambda **options: Run(spark, cluster, tmp_path / "checkpoint", **options).finished()


def test_a_stream_goes_on_where_its_checkpoint_stands(run: Callable[..., Run], cluster: Cluster) -> None:
    assert run(maxOffsetsPerTrigger=2_000).indexes == list(range(5_000))
    cluster.append([b"later"] * 10)
    assert run(maxOffsetsPerTrigger=2_000).indexes == list(range(5_000, 5_010))


def test_a_micro_batch_has_no_more_records_than_it_may(run: Callable[..., Run]) -> None:
    run_ = run(maxOffsetsPerTrigger=2_000)
    assert [len(indexes) for _, indexes in run_.batches] == [2_000, 2_000, 1_000]


def test_a_micro_batch_that_is_run_again_is_the_same(run: Callable[..., Run], cluster: Cluster, tmp_path: Path) -> None:
    first = run(minPartitions=3)
    forget_last_commit(tmp_path / "checkpoint")
    cluster.append([b"later"] * 10)
    again = run(minPartitions=7)
    assert again.batches[0] == first.batches[-1]
    assert again.batches[1][1] == list(range(5_000, 5_010))


def test_the_progress_tells_where_the_log_ends(run: Callable[..., Run]) -> None:
    progress = run(maxOffsetsPerTrigger=2_000).query.lastProgress
    assert progress is not None
    source = json.loads(progress.json)["sources"][0]
    assert json.loads(json.dumps(source["endOffset"]))["index"] == 5_000
    assert json.loads(json.dumps(source["latestOffset"]))["index"] == 5_000


# Without a session --------------------------------------------------------------------------------------------------


def reader(cluster: Cluster, **options: str) -> StreamReader:
    given = {"dledger.endpoints": cluster.endpoints, **options}
    return StreamReader(lambda: ReadOptions.parse(given, streaming=True))


def test_a_checkpoint_ahead_of_the_log_stops_the_query(cluster: Cluster) -> None:
    stream = reader(cluster)
    ahead = {"group": "default", "index": 7, "cuts": ""}
    with pytest.raises(Exception, match="the checkpoint stands at index 7, but the log ends at 0"):
        stream.latestOffset(ahead, stream.getDefaultReadLimit())
    stream.stop()


def test_a_checkpoint_of_another_group_is_refused(cluster: Cluster) -> None:
    stream = reader(cluster)
    with pytest.raises(Exception, match="is of group 'orders', not 'default'"):
        stream.partitions({"group": "orders", "index": 0}, {"group": "orders", "index": 1})


def test_the_offset_says_how_a_micro_batch_is_cut(cluster: Cluster) -> None:
    stream = reader(cluster)
    start = {"group": "default", "index": 10, "cuts": "5"}
    end = {"group": "default", "index": 40, "cuts": "20,30"}
    assert stream.partitions(start, end) == [Split(10, 20), Split(20, 30), Split(30, 40)]
    assert stream.partitions(start, start) == []


@pytest.mark.parametrize(
    ("size_bytes", "end"), [(1, 6), (500, 10), (1_000, 15), (1_500, 15), (2_000, 16), (10_000, 20)]
)
def test_bytes_are_counted_by_segment(size_bytes: int, end: int) -> None:
    small, large = Span(0, 15, 1_500, 0), Span(15, 20, 5_000, 0)
    assert index_after_bytes(5, size_bytes, [small, large]) == end


def test_a_checkpoint_of_another_log_is_refused(run: Callable[..., Run], spark: SparkSession, tmp_path: Path) -> None:
    run()
    with running(tmp_path / "another") as another:
        another.append([b"another log's %d" % number for number in range(9_000)])
        with pytest.raises(Exception, match="the checkpoint is of another log"):
            Run(spark, another, tmp_path / "checkpoint").finished()


def test_a_cluster_that_is_not_the_one_named_is_refused(run: Callable[..., Run]) -> None:
    with pytest.raises(Exception, match="0123456789abcdef was asked for"):
        run(clusterId="0123456789abcdef")
