"""The latest value by key, as a table: what a log of changes amounts to."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dledger.errors import ConfigError
from dledger.spark.jobs.progress import Tell, quiet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_KEY = "get_json_object(cast(value AS string), '$.key')"

SPARKS_MARK = "_SUCCESS"
"""What Spark leaves in a directory that a job wrote to its end."""


def compact(
    spark: SparkSession, records: DataFrame, out: Path, *, key: str = DEFAULT_KEY, tell: Tell = quiet
) -> dict[str, Any]:
    """Of all records with one ``key``, an SQL expression over index, term, timestamp and value, the last one is kept.

    Records whose key is null are left out, and counted. ``out`` is replaced as a whole, once all is written beside it.
    Raises CONFIG_ERROR where it holds anything but a table.
    """
    draft, former = (out.with_name(f".{out.name}.{state}") for state in ("new", "old"))
    if former.exists() and not out.exists():  # killed between two renames
        former.rename(out)
    if out.exists() and any(out.iterdir()) and not (out / SPARKS_MARK).exists():
        raise ConfigError(f"{out} holds something else than a table, which would be lost: name another directory")
    from pyspark.errors import AnalysisException  # noqa: PLC0415  # with the session, not before

    try:
        keyed = records.selectExpr(f"{key} AS key", "struct(index, term, timestamp, value) AS record")
    except AnalysisException as wrong:
        raise ConfigError(f"the key {key!r} cannot be computed: {wrong.getMessage()}") from wrong
    tell("compacting", -1)
    latest = keyed.filter("key IS NOT NULL").groupBy("key").agg({"record": "max"}).selectExpr("key", "`max(record)`.*")
    latest.write.mode("overwrite").parquet(str(draft))
    shutil.rmtree(former, ignore_errors=True)
    if out.exists():
        out.rename(former)
    draft.rename(out)
    shutil.rmtree(former, ignore_errors=True)
    counts = keyed.selectExpr("count(1) AS records", "count_if(key IS NULL) AS without_key").collect()[0]
    keys = spark.read.parquet(str(out)).count()
    return {"records": counts["records"], "keys": keys, "without_key": counts["without_key"]}
