"""The jobs of ``dledger spark``: what each finds, and that it finds what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dledger.errors import ConfigError
from dledger.kernels.audit import audit_locally
from dledger.kernels.record_stats import summary
from dledger.spark.jobs import archive, audit, check, compact, replay, stats
from tests.spark.clusters import Cluster, running
from tests.unit.kernels.histories import append, batch_of, final, value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = [b"record %d" % number for number in range(20_000)]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("jobs"), nodes=3) as cluster:
        cluster.append(RECORDS)
        yield cluster


def log_of(cluster: Cluster) -> dict[str, str]:
    return {"dledger.endpoints": cluster.endpoints}


# archive ------------------------------------------------------------------------------------------------------------


def test_an_archive_holds_every_record_and_goes_on_where_it_was(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    out = tmp_path / "archive"
    for count in (3_000, 5_000):
        cluster.append(RECORDS[count - 2_000 : count])
        found = archive.archive(spark, log_of(cluster), out)
        assert (found["missing"], found["doubled"], found["differing"]) == (0, 0, 0)
    rows = archive.read(spark, out).orderBy("index").collect()
    assert [bytes(row["value"]) for row in rows] == RECORDS[1_000:5_000]
    assert [row["index"] for row in rows] == list(range(4_000))


def test_what_an_archive_lacks_doubles_or_changed_is_counted(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.append(RECORDS[:100])
    archive.archive(spark, log_of(cluster), tmp_path / "whole", verify=False)
    rows = archive.read(spark, tmp_path / "whole")
    spoilt = rows.filter("index != 7").selectExpr(
        "index", "term", "timestamp", "if(index = 9, cast('x' as binary), value) AS value", "date"
    )
    spoilt = spoilt.union(rows.filter("index = 11"))
    found = archive.differences(spark.read.format("dledger").options(**log_of(cluster)).load(), spoilt)
    assert found == {"missing": 1, "doubled": 1, "differing": 1}


def test_a_directory_without_an_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no archive"):
        archive.read(spark, tmp_path)


# audit --------------------------------------------------------------------------------------------------------------


def test_both_engines_agree_on_nodes_that_are_well_and_on_one_that_is_not(
    spark: SparkSession, filled: Cluster, tmp_path: Path
) -> None:
    copies = []
    for node_id in filled.nodes.nodes:
        shutil.copytree(filled.data_dir(node_id), tmp_path / node_id)
        copies.append(tmp_path / node_id)
    well = audit_locally(copies)
    assert well.ok
    assert well.records > 0
    assert audit.audit(spark, copies) == well
    segment = max(copies[1].rglob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[5_000] ^= 1
    segment.write_bytes(content)
    found = audit_locally(copies)
    assert (found.rot, found.diverged) == (1, 0)
    assert audit.audit(spark, copies) == found
    assert json.loads(json.dumps(found.as_dict()))["ok"] is False


# stats, plot --------------------------------------------------------------------------------------------------------


def test_both_engines_count_the_same_and_the_picture_has_its_numbers_beside_it(
    spark: SparkSession, filled: Cluster, tmp_path: Path
) -> None:
    frame = spark.read.format("dledger").options(**log_of(filled), minPartitions="3").load()
    merged = stats.sums(frame)
    assert summary(merged) == summary(stats.local_sums(log_of(filled)))
    drawn = stats.plot(merged, tmp_path / "report", "a log")
    assert (drawn["records"], drawn["size_bytes"]) == (len(RECORDS), sum(map(len, RECORDS)))
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert "<td>records<td>20000" in (tmp_path / "report.html").read_text()


# replay, compact ----------------------------------------------------------------------------------------------------


def test_an_archive_is_replayed_in_order_and_once(
    spark: SparkSession, filled: Cluster, cluster: Cluster, tmp_path: Path
) -> None:
    archive.archive(spark, log_of(filled), tmp_path / "archive", verify=False)
    for _ in range(2):
        replay.replay(spark, tmp_path / "archive", log_of(cluster), "restore")
    assert cluster.records() == RECORDS


def test_what_lacks_a_column_is_not_replayed(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "ids"))
    with pytest.raises(ConfigError, match="has no column index, but id"):
        replay.replay(spark, tmp_path / "ids", log_of(cluster), "x")


def test_the_latest_record_of_each_key_is_kept(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.append([b'{"key":"a","n":1}', b'{"key":"b","n":2}', b"no key", b'{"key":"a","n":3}'])
    records = spark.read.format("dledger").options(**log_of(cluster)).load()
    found = compact.compact(spark, records, tmp_path / "table")
    assert found == {"records": 4, "keys": 2, "without_key": 1}
    rows = {row["key"]: bytes(row["value"]) for row in spark.read.parquet(str(tmp_path / "table")).collect()}
    assert rows == {"a": b'{"key":"a","n":3}', "b": b'{"key":"b","n":2}'}
    with pytest.raises(ConfigError, match="cannot be computed"):
        compact.compact(spark, records, tmp_path / "table", key="nonsense(value)")


# check --------------------------------------------------------------------------------------------------------------


def test_both_engines_give_a_history_the_same_verdict(spark: SparkSession, tmp_path: Path) -> None:
    appends = [append(1, number, (10 * number, 10 * number + 5), index=number) for number in range(200)]
    found = final([value(1, number) for number in range(199)], at=(5_000, 5_001))  # the last one is lost
    table = pa.Table.from_batches([batch_of([*appends, *found])])
    pq.write_table(table.slice(0, 90), tmp_path / "one.parquet")
    pq.write_table(table.slice(90), tmp_path / "two.parquet")
    verdict = check.check_locally(tmp_path)
    assert not verdict["valid"]
    assert verdict["lost"] == 1
    assert check.check(spark, tmp_path) == verdict


def test_what_is_no_history_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ConfigError, match="is no history: it lacks the columns call"):
        check.check(spark, tmp_path / "x.parquet")
