"""A fault test's history, found and read: Parquet, or the lines of JSON that it was recorded as.

Kernels sum it up, under ``mapInArrow`` or in this process: each task gives a partial result of its rows, and the driver
merges those. So a history may be larger than any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dledger.errors import ConfigError
from dledger.kernels.history import HISTORY_SCHEMA, problem_of
from dledger.kernels.kernel import Kernel, whole_partial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OF_A_RUN = ("history.parquet", "appends.jsonl")
"""What a run's directory holds of it: the second one until it has ended."""
LINES_SUFFIX = ".jsonl"
LINES_AT_A_TIME = 65_536


class History(NamedTuple):
    """Where it is."""

    files: list[Path]
    is_lines: bool = False
    """Of appends alone, which is enough for all but a verdict."""


def find(path: Path) -> History:
    """A Parquet file, a directory of them, a file of lines, or a run's directory. Raises CONFIG_ERROR for what is none,
    of Parquet by its columns: before Spark is started."""
    for name in OF_A_RUN:
        if (path / name).exists():
            return find(path / name)
    if path.suffix == LINES_SUFFIX and path.is_file():
        return History([path], is_lines=True)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise ConfigError(
            f"{path} holds no history: name a Parquet file, a directory of them, or a fault test's directory"
        )
    for file in files:
        _check_columns(file)
    return History(files)


def _check_columns(file: Path) -> None:
    try:
        columns = pq.read_schema(file).names
    except (OSError, pa.ArrowInvalid) as failure:
        raise ConfigError(f"{file} is no history: {failure}") from None
    missing = set(HISTORY_SCHEMA.names) - set(columns)
    if missing:
        raise ConfigError(f"{file} is no history: it lacks the columns {', '.join(sorted(missing))}")


def rows(spark: SparkSession, history: History) -> DataFrame:
    """With the columns of ``HISTORY_SCHEMA``; of lines, the lines."""
    if not history.is_lines:
        return spark.read.parquet(*map(str, history.files)).select(*HISTORY_SCHEMA.names)
    lines = spark.read.text(str(history.files[0]))
    return lines.filter(lines.value != _torn_line(history.files[0]))


def batches(history: History) -> Iterator[pa.RecordBatch]:
    """The same in this process."""
    if history.is_lines:
        with history.files[0].open("rb") as file:
            while lines := list(islice(file, LINES_AT_A_TIME)):
                whole_lines = [line for line in lines if line.endswith(b"\n")]
                yield pa.record_batch({"value": pa.array(whole_lines, pa.binary())})
        return
    for path in history.files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=HISTORY_SCHEMA.names):
                yield checked(batch)


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Raises CONFIG_ERROR for rows that are of no history."""
    batch = batch.select(HISTORY_SCHEMA.names)
    problem = problem_of(batch)
    if problem:
        raise ConfigError(f"this is no history: {problem}")
    return batch.cast(HISTORY_SCHEMA)


def partial_of(rows: DataFrame, kernel: Kernel) -> pa.Table:
    """The kernel's merged partial of rows that Spark reads."""
    partials = rows.mapInArrow(_partials_of(kernel), _sql_schema(kernel.schema)).toArrow()
    return kernel.merge([partials.cast(kernel.schema)])


def _torn_line(file: Path) -> str:
    """What follows the last line's end: whoever recorded it was killed as it was written, and nobody heard of it."""
    with file.open("rb") as opened:
        end = opened.seek(0, 2)
        opened.seek(max(0, end - LINES_AT_A_TIME))
        return opened.read().rpartition(b"\n")[2].decode("utf-8", "replace")


def _partials_of(kernel: Kernel) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def partials(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        of_rows = (checked(batch) if "kind" in batch.schema.names else batch for batch in given)
        yield from whole_partial(kernel, of_rows).to_batches()

    return partials


def _sql_schema(schema: pa.Schema) -> str:
    assert all(each.type == pa.int64() for each in schema), "a partial is a table of whole numbers"
    return ", ".join(f"`{name}` bigint" for name in schema.names)
