"""A fault test's history, judged: the kernels of ``dledger.kernels.checks`` under ``mapInArrow``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dledger.common.errors import ConfigError
from dledger.kernels.checks import check_history, found_by, verdict
from dledger.kernels.overview import ROWS_A_SHARD, Overview, OverviewKernel
from dledger.spark.jobs import histories
from dledger.spark.jobs.progress import Tell, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(
    spark: SparkSession, history: Path, *, rows_a_shard: int = ROWS_A_SHARD, tell: Tell = quiet
) -> dict[str, Any]:
    """The verdict of ``check_locally``, by Spark."""
    rows = histories.rows(spark, whole(history))
    tell("a first look", 0.0)
    overview = Overview(histories.partial_of(rows, OverviewKernel()), rows_a_shard)
    tell("checks", 0.1)
    return verdict(found_by([summaries] for summaries in histories.summaries_of(rows, overview)))


def check_locally(history: Path, *, tell: Tell = quiet) -> dict[str, Any]:
    """In this process, a batch and then a shard at a time. What memory does not hold waits in TMPDIR."""
    found = whole(history)
    return verdict(check_history(lambda: histories.batches(found), tell=tell))


def whole(history: Path) -> histories.History:
    """One with its reads: Parquet. Raises CONFIG_ERROR."""
    found = histories.find(history)
    if found.is_lines:
        raise ConfigError(f"{found.files[0]} tells of appends alone, and a verdict needs the reads: name Parquet files")
    return found
