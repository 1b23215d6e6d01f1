"""Parquet into a log, in the order of a column, exactly once: an archive brought back, or another log's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dledger.errors import ConfigError
from dledger.spark.jobs.archive import CHECKPOINT, read
from dledger.spark.jobs.progress import Tell, quiet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_ORDER = "index"


def replay(
    spark: SparkSession,
    source: Path,
    log: Mapping[str, str],
    name: str,
    *,
    order: str = DEFAULT_ORDER,
    tell: Tell = quiet,
) -> dict[str, Any]:
    """Appends the column ``value`` of ``source``, sorted by ``order``. Run again under the same ``name`` it goes on.

    One task sorts and appends: what has an order comes from one place, and what several tasks sorted would be put
    together by where it lies. Raises CONFIG_ERROR where a column is missing.
    """
    rows = _rows(spark, source)
    for column in (order, "value"):
        if column not in rows.columns:
            raise ConfigError(f"{source} has no column {column}, but {', '.join(rows.columns)}")
    tell("replaying", -1)
    # Rows that are equal in it come in the same order each time, or a second run could not find what the first did.
    keys = [name for name in dict.fromkeys((order, DEFAULT_ORDER, "value")) if name in rows.columns]
    ordered = rows.repartition(1).sortWithinPartitions(*keys).select("value")
    writer = ordered.write.format("dledger").options(**log).option("txnAppId", name).option("txnVersion", "0")
    writer.mode("append").save()
    return {"records": rows.count(), "name": name}


def _rows(spark: SparkSession, source: Path) -> DataFrame:
    if (source / CHECKPOINT).is_dir():
        return read(spark, source)
    if not source.exists():
        raise ConfigError(f"{source} does not exist: name a Parquet file, a directory of them, or an archive")
    return spark.read.parquet(str(source))
