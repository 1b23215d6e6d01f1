"""``spark.read.format("dledger")``: every committed record of the range, once, in its columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.clusters import Cluster, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = [b"record %d" % number * (number % 7) for number in range(30_000)]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A log of thirty thousand records of all lengths, in frames of 1 to 997."""
    with running(tmp_path_factory.mktemp("filled"), nodes=3) as cluster:
        cluster.append(RECORDS[:29_910], batch=997)
        cluster.append(RECORDS[29_910:], batch=1)
        yield cluster


def read(spark: SparkSession, cluster: Cluster, **options: Any) -> DataFrame:
    return spark.read.format("dledger").option("dledger.endpoints", cluster.endpoints).options(**options).load()


def found(frame: DataFrame) -> list[tuple[int, bytes]]:
    return sorted((row["index"], bytes(row["value"])) for row in frame.select("index", "value").collect())


def expected(start: int = 0, end: int = len(RECORDS)) -> list[tuple[int, bytes]]:
    return [(index, RECORDS[index]) for index in range(start, end)]


def test_every_record_is_read_once_whatever_the_splits(spark: SparkSession, filled: Cluster) -> None:
    for partitions in (0, 1, 7):
        assert found(read(spark, filled, minPartitions=partitions)) == expected()


def test_the_columns_are_the_logs(spark: SparkSession, filled: Cluster) -> None:
    columns = "group,index,term,timestamp,value,producer_id,producer_epoch,sequence"
    row = read(spark, filled, columns=columns, startingOffsets=1500, endingOffsets=1501).collect()[0]
    with filled.log() as log:
        entry = log.get(1500)
    assert (row["group"], row["index"], row["term"], bytes(row["value"])) == ("default", 1500, entry.term, entry.value)
    assert row["timestamp"].replace(tzinfo=UTC) == datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC)
    assert row["producer_id"] > 0
    assert row["sequence"] == 1500


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({"startingOffsets": "17", "endingOffsets": "1200"}, 17, 1200),
        ({"startingOffsets": '{"default": 29990}'}, 29_990, 30_000),
        ({"startingOffsets": '{"default": -2}', "endingOffsets": '{"default": 5}'}, 0, 5),
        ({"startingOffsets": "30000"}, 30_000, 30_000),
    ],
)
def test_a_range_is_read_exactly(
    spark: SparkSession, filled: Cluster, options: dict[str, str], start: int, end: int
) -> None:
    assert found(read(spark, filled, **options)) == expected(start, end)


def test_a_time_is_the_first_record_at_or_after_it(spark: SparkSession, filled: Cluster) -> None:
    with filled.log() as log:
        times = [entry.timestamp_ms for entry in log.read()]
    middle = times[15_000]
    first = times.index(middle)
    assert found(read(spark, filled, startingTimestamp=middle)) == expected(first)
    assert found(read(spark, filled, endingTimestamp=middle)) == expected(0, first)


@pytest.mark.parametrize("read_from", ["leader", "any", "n0", "n1", "n2"])
def test_any_node_can_be_read(spark: SparkSession, filled: Cluster, read_from: str) -> None:
    assert found(read(spark, filled, readFrom=read_from, startingOffsets=29_000, endingOffsets=29_950)) == expected(
        29_000, 29_950
    )


def test_a_copy_of_a_nodes_files_is_read_as_far_as_it_is_known_to_be_committed(
    spark: SparkSession, filled: Cluster
) -> None:
    frame = spark.read.format("dledger").load(str(filled.data_dir("n1")))
    records = found(frame)
    assert records == expected(0, len(records))
    assert len(records) >= 29_910


def test_filters_are_pushed_down_when_asked_to(spark: SparkSession, filled: Cluster) -> None:
    frame = read(spark, filled, pushFilters="true").filter("index >= 700 and index < 1100 and length(value) > 0")
    assert found(frame) == [each for each in expected(700, 1100) if each[1]]


def test_an_empty_log_is_an_empty_table(spark: SparkSession, cluster: Cluster) -> None:
    assert read(spark, cluster).count() == 0


def test_a_table_of_sparks_catalog_is_read_with_its_endpoints(spark: SparkSession, filled: Cluster) -> None:
    where = f"('dledger.endpoints' = '{filled.endpoints}')"
    spark.sql(f"CREATE TABLE events USING dledger OPTIONS {where}")
    try:
        assert spark.sql(f"SELECT count(*) FROM events WITH {where}").collect() == [(30_000,)]
        with pytest.raises(Exception, match=r"WITH \('dledger.endpoints'"):
            spark.sql("SELECT count(*) FROM events").collect()
    finally:
        spark.sql("DROP TABLE events")
