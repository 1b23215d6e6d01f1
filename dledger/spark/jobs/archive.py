"""The committed log as Parquet, by date: checkpointed, so that it can be killed, and compared with the log.

::

    OUT/date=2026-11-21/part-….parquet     index, term, timestamp, value
    OUT/_spark_metadata/                   which files count: what a killed task left behind does not
    OUT/_checkpoint/                       how far the log was archived; delete both to begin anew
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dledger.common.errors import ConfigError
from dledger.spark.jobs.progress import Tell, quiet
from dledger.spark.origin import opened
from dledger.spark.plan import resolve_range
from dledger.spark.source_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

CHECKPOINT = "_checkpoint"
FOLLOW_INTERVAL_MS = 1_000
DEFAULT_BYTES_PER_TRIGGER = 256 << 20
POLL_S = 0.5
BEGINNINGS = ("startingoffsets", "startingtimestamp")
SUMMED_BITS = (1 << 20) - 1
SCHEMA = "index bigint, term bigint, timestamp timestamp, value binary, date date"


def start(
    spark: SparkSession,
    log: Mapping[str, str],
    out: Path,
    *,
    follow: bool = False,
    interval_ms: int = FOLLOW_INTERVAL_MS,
) -> StreamingQuery:
    """Archives the records that are there, and with ``follow`` also those that come. ``log``: options of the source."""
    options = {"startingOffsets": "earliest", "maxBytesPerTrigger": str(DEFAULT_BYTES_PER_TRIGGER), **log}
    records = spark.readStream.format("dledger").options(**options).load()
    writer = (
        records.selectExpr("*", "to_date(timestamp) AS date")
        .writeStream.format("parquet")
        .partitionBy("date")
        .option("checkpointLocation", str(out / CHECKPOINT))
        .option("path", str(out))
        .queryName("dledger archive")
    )
    trigger = (
        writer.trigger(processingTime=f"{interval_ms} milliseconds") if follow else writer.trigger(availableNow=True)
    )
    return trigger.start()


def archive(
    spark: SparkSession, log: Mapping[str, str], out: Path, *, verify: bool = True, tell: Tell = quiet
) -> dict[str, Any]:
    """Archives everything that is committed, and compares it with the log. Raises what the query failed of."""
    query = start(spark, log, out)
    while not query.awaitTermination(POLL_S):
        tell("archiving", _share(query))
    return compare(spark, log, out, tell=tell) if verify else {"records": read(spark, out).count()}


def read(spark: SparkSession, out: Path) -> DataFrame:
    """The archive as a table."""
    if not (out / "_spark_metadata").is_dir():
        raise ConfigError(f"{out} holds no archive: make one with dledger spark archive {out}")
    return spark.read.schema(SCHEMA).parquet(str(out))


def compare(spark: SparkSession, log: Mapping[str, str], out: Path, *, tell: Tell = quiet) -> dict[str, Any]:
    """Each record of the log against the archive, from the beginning given in ``log``: ``missing``, ``doubled``,
    ``differing``. Records trimmed from the log since they were archived are not looked at."""
    tell("comparing", -1)
    archived = read(spark, out)
    wanted = ReadOptions.parse({**log, "failOnDataLoss": "false"})
    with opened(wanted.place) as origin:
        first, log_end = resolve_range(wanted, origin)
    if log_end <= first:
        return {"records": 0, "first_index": first, "end_index": log_end, "missing": 0, "doubled": 0, "differing": 0}
    place = {name: value for name, value in log.items() if name.lower() not in BEGINNINGS}
    options = {**place, "startingOffsets": str(first), "endingOffsets": str(log_end)}
    original = spark.read.format("dledger").options(**options).load()
    kept = archived.filter(f"index >= {first} AND index < {log_end}")
    one, other = fingerprint(original), fingerprint(kept)
    counts = {"missing": 0, "doubled": 0, "differing": 0} if one == other else differences(original, kept)
    return {"records": other[0], "first_index": first, "end_index": log_end, **counts}


def fingerprint(records: DataFrame) -> tuple[int, int, int]:
    """How many, and two sums over all of them that do not depend on their order. Equal records cancel out in the first
    sum. The second one has room for 8 · 10¹² of them."""
    row = (
        records.selectExpr("xxhash64(index, term, timestamp, value) AS hash")
        .selectExpr(
            "count(1) AS records",
            "coalesce(bit_xor(hash), 0) AS mixed",
            f"coalesce(sum(hash & {SUMMED_BITS}), 0) AS total",
        )
        .collect()[0]
    )
    return row["records"], row["mixed"], row["total"]


def differences(original: DataFrame, kept: DataFrame) -> dict[str, int]:
    """Counted record by record."""
    hashed = kept.selectExpr("index", "xxhash64(term, timestamp, value) AS hash")
    doubled = hashed.selectExpr("count(1) - count(DISTINCT index) AS doubled").collect()[0]["doubled"]
    wanted = original.selectExpr("index", "xxhash64(term, timestamp, value) AS wanted")
    found = wanted.join(hashed, "index", "left")
    row = found.selectExpr(
        "count_if(hash IS NULL) AS missing", "count_if(hash IS NOT NULL AND hash != wanted) AS differing"
    ).collect()[0]
    return {"missing": row["missing"], "doubled": doubled, "differing": row["differing"]}


def _share(query: StreamingQuery) -> float:
    """Of what was there when the query began."""
    progress = query.lastProgress
    if progress is None or not progress.sources:
        return -1
    source = progress.sources[0]
    end, latest = _index(source.endOffset), _index(source.latestOffset)
    return end / latest if latest else -1


def _index(offset: Any) -> int:
    return int(json.loads(offset)["index"]) if offset and offset != "null" else 0
