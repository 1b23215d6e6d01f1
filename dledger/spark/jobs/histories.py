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
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dledger.common.errors import ConfigError
from dledger.kernels.checks import CHECKS, shares
from dledger.kernels.history import HISTORY_SCHEMA, joined, problem_of
from dledger.kernels.kernel import SUMMARY, Kernel, whole_partial
from dledger.kernels.overview import Overview
from dledger.kernels.spill import packed, unpacked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OF_A_RUN = ("history.parquet", "appends.jsonl")
"""What a run's directory holds of it: the second one until it has ended."""
LINES_SUFFIX = ".jsonl"
LINES_AT_A_TIME = 65_536
MOST_TASKS = 1_000


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
    """The rows that tell each task its share. For Parquet these are (file, row group), for the JVM would bring every
    row from columns to rows and back. For lines these are the lines."""
    if history.is_lines:
        lines = spark.read.text(str(history.files[0]))
        return lines.filter(lines.value != _torn_line(history.files[0]))
    groups = [(str(file), group) for file in history.files for group in range(pq.read_metadata(file).num_row_groups)]
    return spark.createDataFrame(groups, "file string, row_group int").repartition(max(1, min(len(groups), MOST_TASKS)))


def batches(history: History) -> Iterator[pa.RecordBatch]:
    """The history's rows in batches, for a job in this process."""
    if history.is_lines:
        with history.files[0].open("rb") as file:
            while lines := list(islice(file, LINES_AT_A_TIME)):
                whole_lines = [line for line in lines if line.endswith(b"\n")]
                yield pa.record_batch({"value": pa.array(whole_lines, pa.binary())})
        return
    for path in history.files:
        yield from _of_parquet(path)


def _of_parquet(path: Path, row_group: int | None = None) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        groups = range(file.num_row_groups) if row_group is None else [row_group]
        for batch in file.iter_batches(row_groups=groups, columns=HISTORY_SCHEMA.names):
            yield checked(batch)


def _read(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches that a task's part of ``rows`` stands for."""
    for batch in given:
        if "row_group" not in batch.schema.names:
            yield batch
            continue
        for file, row_group in zip(*(batch.column(name).to_pylist() for name in ("file", "row_group")), strict=True):
            yield from _of_parquet(Path(file), row_group)


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
    """The bytes behind the last line's end: the recorder was killed as it wrote them, and nobody heard of that
    event."""
    with file.open("rb") as opened:
        end = opened.seek(0, 2)
        opened.seek(max(0, end - LINES_AT_A_TIME))
        return opened.read().rpartition(b"\n")[2].decode("utf-8", "replace")


def _partials_of(kernel: Kernel) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def partials(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from whole_partial(kernel, _read(given)).to_batches()

    return partials


def summaries_of(rows: DataFrame, overview: Overview) -> list[pa.Table]:
    """Of each of ``CHECKS``, its shards' summaries. Spark's shuffle brings the rows of a shard together. So each worker
    holds a shard at a time, even of a history larger than any machine."""
    shared = rows.mapInArrow(_shares_of(overview), "check bigint, shard bigint, rows binary")
    summed = shared.groupBy("check", "shard").applyInArrow(
        _summary_in(overview), f"check bigint, {_sql_schema(SUMMARY)}"
    )
    told = summed.toArrow()
    return [
        told.filter(pc.equal(told.column("check"), number)).select(SUMMARY.names).cast(SUMMARY)
        for number in range(len(CHECKS))
    ]


def _shares_of(overview: Overview) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A row for each share: the JVM would take apart, and put together again, what comes as a row each."""

    def shared(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in _read(given):
            told = list(shares(batch, overview))
            yield pa.record_batch(
                {
                    "check": pa.array([share.check for share in told], pa.int64()),
                    "shard": pa.array([share.shard for share in told], pa.int64()),
                    "rows": pa.array([packed(share.rows) for share in told], pa.binary()),
                }
            )

    return shared


def _summary_in(overview: Overview) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    def summary(key: tuple[pa.Scalar, ...], told: pa.Table) -> pa.Table:
        number, shard = (each.as_py() for each in key)
        check = CHECKS[number]
        rows = joined(check.schema, (unpacked(each.as_buffer()) for each in told.column("rows")))
        found = check.summary(rows, overview, shard)
        return found.add_column(0, "check", pa.repeat(pa.scalar(number, pa.int64()), found.num_rows))

    return summary


def _sql_schema(schema: pa.Schema) -> str:
    assert all(each.type == pa.int64() for each in schema), "a partial is a table of whole numbers"
    return ", ".join(f"`{name}` bigint" for name in schema.names)
