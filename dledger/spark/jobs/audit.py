"""Several nodes' files compared, a file a task: the kernels of ``dledger.kernels.log_audit`` under ``mapInArrow``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from dledger.kernels.frames import BLOCK_SCHEMA, merge_blocks
from dledger.kernels.log_audit import Audit, Nodes, Piece, sum_up, verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 4
"""Files are of all sizes: more tasks than cores even them out, and each costs Spark 50 ms."""
PIECE_SCHEMA = "node bigint, directory string, segment string"
PARTIAL_SCHEMA = (
    "node bigint, block bigint, frames bigint, bad bigint, records bigint, first_position bigint, "
    "last_position bigint, hash bigint"
)


def audit(spark: SparkSession, directories: Sequence[Path]) -> Audit:
    """The verdict of ``audit_locally``, by Spark. Every worker must be able to read the directories."""
    nodes = Nodes(directories)
    pieces = nodes.pieces()
    if not pieces:
        return verdict(nodes, merge_blocks([]))
    tasks = min(len(pieces), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    listed = spark.createDataFrame(spark.sparkContext.parallelize(pieces, tasks), PIECE_SCHEMA)
    partials = listed.mapInArrow(_sum_up_all, PARTIAL_SCHEMA).toArrow()
    return verdict(nodes, merge_blocks([_unsigned(partials)]))


def _sum_up_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            yield from _signed(sum_up(Piece(**row))).to_batches()


def _signed(partial: pa.Table) -> pa.Table:
    """Spark knows no unsigned numbers."""
    place = partial.schema.get_field_index("hash")
    return partial.set_column(place, "hash", [chunk.view(pa.int64()) for chunk in partial.column("hash").chunks])


def _unsigned(partial: pa.Table) -> pa.Table:
    place = partial.schema.get_field_index("hash")
    chunks = [chunk.view(pa.uint64()) for chunk in partial.column("hash").chunks]
    return partial.set_column(place, "hash", pa.chunked_array(chunks, pa.uint64())).cast(BLOCK_SCHEMA)
