"""The jobs of ``dledger spark``: what each finds, and that it finds what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dledger.common.errors import ConfigError
from dledger.kernels.history import FINAL, HISTORY_SCHEMA, OK
from dledger.kernels.log_audit import audit_locally
from dledger.kernels.record_stats import summary
from dledger.spark.jobs import archive, audit, calls, check, compact, histories, replay, stats
from dledger.spark.session import sentence_of
from tests.spark.clusters import Cluster, first_segment, running
from tests.unit.kernels.histories import Row, append, batch_of, value

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


def test_an_archive_that_begins_later_lacks_nothing(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.append(RECORDS[:100])
    log = {**log_of(cluster), "startingOffsets": "40"}
    found = archive.archive(spark, log, tmp_path / "late")
    assert (found["records"], found["first_index"], found["missing"], found["doubled"]) == (60, 40, 0, 0)


def test_the_sums_of_an_archive_have_room_for_every_index(spark: SparkSession) -> None:
    rows = spark.range(1 << 62, (1 << 62) + 5).selectExpr(
        "id AS index", "1 AS term", "timestamp_millis(0) AS timestamp", "cast('x' AS binary) AS value"
    )
    assert archive.fingerprint(rows)[0] == 5
    assert archive.fingerprint(rows) != archive.fingerprint(rows.unionAll(rows))
    assert archive.fingerprint(rows.limit(0)) == (0, 0, 0)


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
    segment = first_segment(copies[1])
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


def test_a_picture_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    for name in ("june.2026", "june.2026.png", "june.2026.html"):
        drawn = stats.plot(stats.STATS.merge([]), tmp_path / name, "nothing")
        assert (drawn["png"], drawn["html"]) == (str(tmp_path / "june.2026.png"), str(tmp_path / "june.2026.html"))


@pytest.mark.parametrize(("slots", "step_s"), [(1, 0.1), (6_000, 0.1), (6_001, 0.2), (1 << 33, 143165.6)])
def test_a_picture_has_no_more_steps_than_dots(slots: int, step_s: float) -> None:
    at, axis_s, found_s = stats.steps_of(np.array([7, 7 + slots - 1]))
    assert at[0] == 0
    assert at[1] == len(axis_s) - 1 < stats.MOST_STEPS
    assert found_s == pytest.approx(step_s, rel=1e-6)


# replay, compact ----------------------------------------------------------------------------------------------------


def test_an_archive_is_replayed_in_order_and_once(
    spark: SparkSession, filled: Cluster, cluster: Cluster, tmp_path: Path
) -> None:
    archive.archive(spark, log_of(filled), tmp_path / "archive", verify=False)
    for _ in range(2):
        replay.replay(spark, tmp_path / "archive", log_of(cluster), "restore")
    assert cluster.records() == RECORDS


def test_what_an_archive_has_grown_by_is_replayed_behind_the_rest_and_once(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    def grow(first: int, end: int) -> None:
        rows = spark.range(first, end, 1, 3).selectExpr("id AS index", "rpad(cast(id AS string), 400, '.') AS value")
        rows.write.mode("append").parquet(str(tmp_path / "archive"))

    def replayed(first_index: int | None = None) -> tuple[int, int]:
        found = replay.replay(spark, tmp_path / "archive", log_of(cluster), "restore", first_index=first_index)
        return found["records"], found["end_index"]

    grow(0, 3_000)
    assert replayed() == (3_000, 3_000)
    assert replayed(3_000) == (0, 3_000)
    grow(3_000, 5_000)
    with pytest.raises(Exception, match="with other rows, or another order"):
        replayed()
    for _ in range(2):
        assert replayed(3_000) == (2_000, 5_000)
    assert [int(record.rstrip(b".")) for record in cluster.records()] == list(range(5_000))


def test_rows_of_one_rank_are_found_again_however_their_files_lie(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    rows = spark.range(0, 3_000, 1, 1).selectExpr("id div 1000 AS hour", "rpad(cast(id AS string), 400, '.') AS value")
    for number, partitions in enumerate((rows, rows.orderBy("value").repartition(3))):
        partitions.write.parquet(str(tmp_path / f"{number}"))
        replay.replay(spark, tmp_path / f"{number}", log_of(cluster), "hours", order="hour")
    records = cluster.records()
    assert len(records) == 3_000
    assert sorted(records, key=lambda record: int(record.rstrip(b".")) // 1_000) == records


def test_what_lacks_a_column_is_not_replayed(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "ids"))
    with pytest.raises(ConfigError, match="has no column index, but id"):
        replay.replay(spark, tmp_path / "ids", log_of(cluster), "x")


def test_the_latest_record_of_each_key_is_kept(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    cluster.append([b'{"key":"a","n":1}', b'{"key":"b","n":2}', b"no key", b'{"key":"a","n":3}'])
    records = spark.read.format("dledger").options(**log_of(cluster)).load()
    found = compact.compact(records, tmp_path / "table")
    assert found == {"records": 4, "keys": 2, "without_key": 1}
    rows = {row["key"]: bytes(row["value"]) for row in spark.read.parquet(str(tmp_path / "table")).collect()}
    assert rows == {"a": b'{"key":"a","n":3}', "b": b'{"key":"b","n":2}'}
    with pytest.raises(ConfigError, match="cannot be computed"):
        compact.compact(records, tmp_path / "table", key="nonsense(value)")


def test_a_table_that_cannot_be_made_leaves_the_one_there_is(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.append([b"a"])
    records = spark.read.format("dledger").options(**log_of(cluster)).load()
    for _ in range(2):
        assert compact.compact(records, tmp_path / "table", key="'k'")["keys"] == 1
    with pytest.raises(Exception, match="no key of a"):
        compact.compact(records, tmp_path / "table", key="raise_error(concat('no key of ', cast(value AS string)))")
    assert spark.read.parquet(str(tmp_path / "table")).count() == 1


def test_what_is_counted_is_what_was_compacted_in_one_look(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.range(5_000).selectExpr(
        "id AS index", "1L AS term", "timestamp_millis(id) AS timestamp", "cast(id % 7 AS string) AS value"
    )
    rows.write.parquet(str(tmp_path / "source"))
    rename = Path.rename

    def with_the_source_gone(draft: Path, table: Path) -> Path:
        shutil.rmtree(tmp_path / "source")
        return rename(draft, table)

    monkeypatch.setattr(Path, "rename", with_the_source_gone)
    found = compact.compact(
        spark.read.parquet(str(tmp_path / "source")), tmp_path / "table", key="if(value = 3, null, value)"
    )
    assert found == {"records": 5_000, "keys": 6, "without_key": 714}


def test_where_no_record_has_a_key_there_is_no_table(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    records = spark.read.format("dledger").options(**log_of(cluster)).load()
    with pytest.raises(ConfigError, match="there is no record to compact"):
        compact.compact(records, tmp_path / "table")
    cluster.append([b"a", b"b"])
    records = spark.read.format("dledger").options(**log_of(cluster)).load()
    assert compact.compact(records, tmp_path / "table", key="'k'")["keys"] == 1
    with pytest.raises(ConfigError, match="none of 2 records has a key") as refused:
        compact.compact(records, tmp_path / "table")
    assert refused.value.exit_code == 2
    assert spark.read.parquet(str(tmp_path / "table")).count() == 1
    assert [each.name for each in tmp_path.iterdir() if "table" in each.name] == ["table"]


def test_what_is_no_table_is_not_replaced_by_one(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    records = spark.read.format("dledger").options(**log_of(cluster)).load()
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ConfigError, match="holds something else than a table, which would be lost"):
        compact.compact(records, tmp_path)
    assert (tmp_path / "mine.txt").exists()


# check --------------------------------------------------------------------------------------------------------------


def test_both_engines_give_a_history_the_same_verdict(spark: SparkSession, tmp_path: Path) -> None:
    size = 10_000
    places = [(1 + number % 3, number // 3 * size, number * size) for number in range(200)]
    appends = [append(process, first, (at, at + 5), index=at, count=size) for process, first, at in places]
    ends = (2_000_000, 2_000_001)
    # The last one is lost, and two that follow each other have changed places.
    order = [*places[:100], places[101], places[100], *places[102:-1]]
    found = [
        Row(1000, FINAL, OK, *ends, value(process, first), number * size, size, read_start=0, read_end=199 * size)
        for number, (process, first, _) in enumerate(order)
    ]
    table = pa.Table.from_batches([batch_of([*appends, *found])])
    pq.write_table(table.slice(0, 90), tmp_path / "one.parquet")
    pq.write_table(table.slice(90), tmp_path / "two.parquet")
    verdict = check.check_locally(tmp_path)
    assert not verdict["valid"]
    assert (verdict["lost"], verdict["conflicts"]) == (size, 2 * size)
    assert check.check(spark, tmp_path) == verdict
    assert check.check(spark, tmp_path, rows_a_shard=50) == verdict


def test_what_is_no_history_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ConfigError, match="is no history: it lacks the columns call"):
        check.check(spark, tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("name", "word", "complaint"),
    [
        ("outcome", None, "a row has no outcome"),
        ("outcome", "maybe", "'maybe' is no outcome"),
        ("kind", "x", "no kind"),
    ],
)
def test_a_row_that_nobody_would_look_at_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, word: str | None, complaint: str
) -> None:
    row = {**vars(append(1, 0, (0, 5), index=0)), name: word}
    pq.write_table(pa.Table.from_pylist([row], schema=HISTORY_SCHEMA), tmp_path / "x.parquet")
    found = histories.find(tmp_path / "x.parquet")
    with pytest.raises(ConfigError, match=complaint):
        calls.local_sums(found)
    with pytest.raises(Exception, match=r"dledger\.common\.errors\.ConfigError") as failure:
        calls.sums(spark, found)
    assert complaint in str(sentence_of(failure.value))


def test_lines_of_appends_alone_are_not_judged(tmp_path: Path) -> None:
    (tmp_path / "appends.jsonl").touch()
    with pytest.raises(ConfigError, match="a verdict needs the reads"):
        check.check_locally(tmp_path)
