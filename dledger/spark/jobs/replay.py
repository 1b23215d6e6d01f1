"""Parquet into a log, in the order of a column, exactly once: an archive brought back, or another log's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dledger.common.errors import ConfigError
from dledger.spark.jobs.archive import CHECKPOINT, read
from dledger.spark.jobs.progress import Tell, quiet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INDEX = "index"
DEFAULT_ORDER = INDEX


def replay(
    spark: SparkSession,
    source: Path,
    log: Mapping[str, str],
    name: str,
    *,
    order: str = DEFAULT_ORDER,
    first_index: int | None = None,
    tell: Tell = quiet,
) -> dict[str, Any]:
    """Appends the column ``value`` of ``source``, sorted by ``order``. Run again under the same ``name`` it goes on.

    One task sorts and appends, so the order comes from one place. Rows sorted by several tasks would be put together by
    their places. Raises CONFIG_ERROR if a column is missing.

    ``first_index``: only rows with that index or a higher one, as a replay of its own under a name of its own. The log
    knows the rows of a name by their numbers, and would take the first of these for the first of all. The ``end_index``
    told is the place to go on when the archive has grown.
    """
    rows = _rows(spark, source)
    for column in (order, "value", *(() if first_index is None else (INDEX,))):
        if column not in rows.columns:
            raise ConfigError(f"{source} has no column {column}, but {', '.join(rows.columns)}")
    if first_index is not None:
        rows = rows.filter(f"`{INDEX}` >= {first_index}")
        name = f"{name} from {first_index}"
    tell("replaying", -1)
    # Rows that are equal in it come in the same order each time, or a second run could not find what the first did.
    keys = [name for name in dict.fromkeys((order, INDEX, "value")) if name in rows.columns]
    ordered = rows.repartition(1).sortWithinPartitions(*keys).select("value")
    writer = ordered.write.format("dledger").options(**log).option("txnAppId", name).option("txnVersion", "0")
    writer.mode("append").save()
    last = f"max(`{INDEX}`)" if INDEX in rows.columns else "null"
    found = rows.selectExpr("count(1) AS records", f"{last} + 1 AS end_index").collect()[0]
    end_index = first_index if found["end_index"] is None else found["end_index"]
    return {"records": found["records"], "end_index": end_index, "name": name}


def _rows(spark: SparkSession, source: Path) -> DataFrame:
    if (source / CHECKPOINT).is_dir():
        return read(spark, source)
    if not source.exists():
        raise ConfigError(f"{source} does not exist: name a Parquet file, a directory of them, or an archive")
    return spark.read.parquet(str(source))
