"""The latest value by key, as a table: what a log of changes amounts to."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dledger.common.errors import ConfigError
from dledger.spark.jobs.progress import Tell, quiet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_KEY = "get_json_object(cast(value AS string), '$.key')"

SPARKS_MARK = "_SUCCESS"
"""A file that Spark leaves in a directory once a job wrote it to its end."""


def compact(records: DataFrame, out: Path, *, key: str = DEFAULT_KEY, tell: Tell = quiet) -> dict[str, Any]:
    """Of all records with one ``key``, an SQL expression over index, term, timestamp and value, the last one is kept.

    Records with a null key are left out, and counted. ``out`` is replaced as a whole, once all is written beside it.
    Raises CONFIG_ERROR if it holds anything but a table, and if no record has a key.
    """
    draft, former = (out.with_name(f".{out.name}.{state}") for state in ("new", "old"))
    if former.exists() and not out.exists():  # killed between two renames
        former.rename(out)
    if out.exists() and any(out.iterdir()) and not (out / SPARKS_MARK).exists():
        raise ConfigError(f"{out} holds something else than a table, which would be lost: name another directory")
    keyed = _keyed(records, key)
    tell("compacting", -1)
    found = _write(keyed, draft)
    if not found["keys"]:
        shutil.rmtree(draft)
        raise ConfigError(
            f"none of {found['records']} records has a key, {key} being null of each: name another --key"
            if found["records"]
            else "there is no record to compact"
        )
    shutil.rmtree(former, ignore_errors=True)
    if out.exists():
        out.rename(former)
    draft.rename(out)
    shutil.rmtree(former, ignore_errors=True)
    return found


def _keyed(records: DataFrame, key: str) -> DataFrame:
    from pyspark.errors import AnalysisException  # noqa: PLC0415  # with the session, not before

    try:
        return records.selectExpr(f"{key} AS key", "struct(index, term, timestamp, value) AS record")
    except AnalysisException as wrong:
        raise ConfigError(f"the key {key!r} cannot be computed: {wrong.getMessage()}") from wrong


def _write(keyed: DataFrame, draft: Path) -> dict[str, Any]:
    """Writes the table, and counts its records as it is written: everything is read once, and the counts are of that
    reading.

    The groups are counted by the tasks that write them. Spark counts each task once, however often it is run."""
    from pyspark.sql import Observation, functions  # noqa: PLC0415  # with the session, not before

    seen = Observation()
    groups = keyed.groupBy("key").agg(functions.expr("max(record) AS latest"), functions.expr("count(1) AS records"))
    counted = groups.observe(
        seen,
        functions.expr("coalesce(sum(records), 0) AS records"),
        functions.expr("count(key) AS keys"),
        functions.expr("coalesce(sum(if(key IS NULL, records, 0)), 0) AS without_key"),
    )
    table = counted.filter("key IS NOT NULL").selectExpr("key", "latest.*")
    table.write.mode("overwrite").parquet(str(draft))
    return {name: seen.get[name] for name in ("records", "keys", "without_key")}
