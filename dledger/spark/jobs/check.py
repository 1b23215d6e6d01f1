"""A fault test's history, judged: the kernels of ``dledger.kernels.checks`` under ``mapInArrow``.

Each task gives a partial result of its rows; the driver merges those. So a history may be larger than any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from dledger.errors import ConfigError
from dledger.kernels.checks import CHECKS, check_history, verdict
from dledger.kernels.history import HISTORY_SCHEMA
from dledger.kernels.kernel import Kernel, whole_partial
from dledger.spark.jobs.progress import Tell, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(spark: SparkSession, history: Path, *, tell: Tell = quiet) -> dict[str, Any]:
    """The same verdict as ``check_locally``. ``history``: Parquet files with the columns of ``HISTORY_SCHEMA``."""
    rows = spark.read.parquet(str(history))
    _check_columns(history, rows.columns)
    rows = rows.select(*HISTORY_SCHEMA.names)
    findings = {}
    for number, kernel in enumerate(CHECKS):
        tell(kernel.name, number / len(CHECKS))
        partials = rows.mapInArrow(_partials_of(kernel), _sql_schema(kernel.schema)).toArrow()
        findings[kernel.name] = kernel.findings(kernel.merge([partials.cast(kernel.schema)]))
    return verdict(findings)


def check_locally(history: Path) -> dict[str, Any]:
    """In this process, a batch at a time."""
    return verdict(check_history(_batches(history)))


def _batches(history: Path) -> Iterator[pa.RecordBatch]:
    files = sorted(history.rglob("*.parquet")) if history.is_dir() else [history]
    if not files or not files[0].exists():
        raise ConfigError(f"{history} holds no history: name a Parquet file, or a directory of them")
    for path in files:
        file = pq.ParquetFile(path)
        _check_columns(path, file.schema_arrow.names)
        for batch in file.iter_batches(columns=HISTORY_SCHEMA.names):
            yield batch.cast(HISTORY_SCHEMA)


def _check_columns(history: Path, columns: Iterable[str]) -> None:
    missing = set(HISTORY_SCHEMA.names) - set(columns)
    if missing:
        raise ConfigError(f"{history} is no history: it lacks the columns {', '.join(sorted(missing))}")


def _partials_of(kernel: Kernel) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def partials(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from whole_partial(kernel, (batch.cast(HISTORY_SCHEMA) for batch in batches)).to_batches()

    return partials


def _sql_schema(schema: pa.Schema) -> str:
    assert all(each.type == pa.int64() for each in schema), "a partial is a table of whole numbers"
    return ", ".join(f"`{name}` bigint" for name in schema.names)
