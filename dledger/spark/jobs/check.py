"""A fault test's history, judged: the kernels of ``dledger.kernels.checks`` under ``mapInArrow``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dledger.errors import ConfigError
from dledger.kernels.checks import CHECKS, check_history, verdict
from dledger.spark.jobs import histories
from dledger.spark.jobs.progress import Tell, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(spark: SparkSession, history: Path, *, tell: Tell = quiet) -> dict[str, Any]:
    """The same verdict as ``check_locally``."""
    rows = histories.rows(spark, whole(history))
    findings = {}
    for number, kernel in enumerate(CHECKS):
        tell(kernel.name, number / len(CHECKS))
        findings[kernel.name] = kernel.findings(histories.partial_of(rows, kernel))
    return verdict(findings)


def check_locally(history: Path) -> dict[str, Any]:
    """In this process, a batch at a time."""
    return verdict(check_history(histories.batches(whole(history))))


def whole(history: Path) -> histories.History:
    """One with its reads: Parquet. Raises CONFIG_ERROR."""
    found = histories.find(history)
    if found.is_lines:
        raise ConfigError(f"{found.files[0]} tells of appends alone, and a verdict needs the reads: name Parquet files")
    return found
