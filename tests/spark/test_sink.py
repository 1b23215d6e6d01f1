"""Appends from Spark: every row exactly once, whatever is run again."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.clusters import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def numbered(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    """Rows '0' to 'count − 1', each partition's in order."""
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as value")


def write(frame: DataFrame, cluster: Cluster, **options: Any) -> None:
    frame.write.format("dledger").option("dledger.endpoints", cluster.endpoints).options(**options).mode(
        "append"
    ).save()


def counts(cluster: Cluster) -> Counter[bytes]:
    return Counter(cluster.records())


def once(count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(count))


# Batch writes -------------------------------------------------------------------------------------------------------


def test_every_row_is_appended_once_and_each_partition_in_order(spark: SparkSession, cluster: Cluster) -> None:
    write(numbered(spark, 100_000, partitions=2), cluster)
    records = cluster.records()
    assert Counter(records) == once(100_000)
    assert [r for r in records if int(r) < 50_000] == [b"%d" % number for number in range(50_000)]


def test_the_same_write_again_appends_nothing(spark: SparkSession, cluster: Cluster) -> None:
    for _ in range(2):
        write(numbered(spark, 1_000), cluster, txnAppId="import", txnVersion=6)
    assert counts(cluster) == once(1_000)


def test_the_next_version_appends_anew_and_the_one_before_is_over(spark: SparkSession, cluster: Cluster) -> None:
    for version in (1, 2, 1):
        write(numbered(spark, 100), cluster, txnAppId="import", txnVersion=version)
    assert counts(cluster) == once(100) + once(100)


def test_without_a_name_a_write_that_is_started_again_appends_again(spark: SparkSession, cluster: Cluster) -> None:
    for _ in range(2):
        write(numbered(spark, 10), cluster)
    assert counts(cluster) == once(10) + once(10)


def test_a_task_that_fails_half_way_is_run_again_and_doubles_nothing(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    marker = str(tmp_path / "failed")

    def fail_once(batches: Any) -> Any:
        for number, batch in enumerate(batches):
            if number == 3:
                try:
                    Path(marker).touch(exist_ok=False)
                except FileExistsError:
                    pass
                else:
                    raise OSError("half-way")
            yield batch

    rows = spark.range(0, 60_000, 1, 1).selectExpr("rpad(cast(id as string), 200, '.') as value")
    write(rows.mapInArrow(fail_once, "value string"), cluster)
    assert Path(marker).exists()
    records = cluster.records()
    assert records == [(b"%d" % number).ljust(200, b".") for number in range(60_000)]


def test_rows_of_the_log_are_written_as_their_values(spark: SparkSession, cluster: Cluster) -> None:
    cluster.append([b"a", b"b"])
    frame = spark.read.format("dledger").option("dledger.endpoints", cluster.endpoints).load()
    write(frame, cluster)
    assert cluster.records() == [b"a", b"b", b"a", b"b"]


# Streams ------------------------------------------------------------------------------------------------------------


def files(directory: Path, count: int, rows: int) -> None:
    """Parquet files of ``rows`` values each, to be streamed one by one: the oldest first, so no two are of one age."""
    directory.mkdir()
    now_s = time.time()
    for number in range(count):
        values = [b"%d" % value for value in range(number * rows, (number + 1) * rows)]
        path = directory / f"{number:04}.parquet"
        pq.write_table(pa.table({"value": pa.array(values, pa.binary())}), path)
        os.utime(path, (now_s, now_s - 60 * (count - number)))


def stream(spark: SparkSession, cluster: Cluster, source: Path, checkpoint: Path, **options: Any) -> None:
    """Everything that is there, a file a micro-batch."""
    frame = spark.readStream.schema("value binary").option("maxFilesPerTrigger", 1).parquet(str(source))
    query = (
        frame.writeStream.format("dledger")
        .option("dledger.endpoints", cluster.endpoints)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died before it could note that the last micro-batch is done."""
    commits = checkpoint / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def test_a_micro_batch_that_is_run_again_appends_nothing_again(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    files(tmp_path / "in", 3, 500)
    for _ in range(3):
        stream(spark, cluster, tmp_path / "in", tmp_path / "checkpoint")
        forget_last_commit(tmp_path / "checkpoint")
    assert cluster.records() == [b"%d" % number for number in range(1_500)]


def test_a_micro_batch_that_is_over_is_not_written_again_from_an_old_checkpoint(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    files(tmp_path / "in", 3, 100)
    stream(spark, cluster, tmp_path / "in", tmp_path / "checkpoint")
    for _ in range(2):
        forget_last_commit(tmp_path / "checkpoint")
    stream(spark, cluster, tmp_path / "in", tmp_path / "checkpoint")
    assert counts(cluster) == once(300)


def test_other_rows_under_the_same_number_stop_the_query(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    files(tmp_path / "in", 1, 100)
    stream(spark, cluster, tmp_path / "in", tmp_path / "checkpoint")
    forget_last_commit(tmp_path / "checkpoint")
    pq.write_table(pa.table({"value": pa.array([b"another"], pa.binary())}), tmp_path / "in" / "0000.parquet")
    with pytest.raises(Exception, match="run again as number 0 with other rows"):
        stream(spark, cluster, tmp_path / "in", tmp_path / "checkpoint")
    assert counts(cluster) == once(100)


# What cannot be written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("cast(id as string) as key", "the rows have no column value, but key"),
        ("id as value", "column value is bigint, and a record is bytes"),
        ("cast(id as string) as value, id as key", "column key would not be written"),
        ("cast(null as string) as value", "column value holds a null"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(
    spark: SparkSession, cluster: Cluster, select: str, problem: str
) -> None:
    with pytest.raises(Exception, match=problem) as refused:
        write(spark.range(3).selectExpr(*select.split(", ")), cluster)
    assert "Traceback" not in str(refused.value)
    assert cluster.records() == []
