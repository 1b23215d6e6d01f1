"""The sink: every row appended exactly once, however often its task, the driver or the log's leader dies.

::

    producer   spark/<query id>/<partition>      the log keeps the name, with what it appended last
    epoch      the micro-batch's number          an older one is over: all of it was written
    sequence   the row's number in its partition, cut into the same chunks each time (chunks.py)

A micro-batch that is run again appends the rows its last run did not get to; the log recognises the others. This rests
on Spark's own promise that a micro-batch is planned once: the same rows, in the same order, in the same partitions. If
a source breaks it, the log refuses the other rows as SEQUENCE_CONFLICT, and the query stops rather than double one.

A task appends full chunks only. When its input fails, Spark ends the task's rows as if there were no more. So the task
cannot tell its last chunk from a torn one. The driver appends this chunk, when the task is known to have succeeded.

A batch write does the same under ``txnAppId`` and ``txnVersion``. Without them it is exactly-once within its job; a job
that is started anew appends anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from dledger.client import BlockingLog, connect_blocking
from dledger.common.errors import Code, ConfigError, DLedgerError
from dledger.common.types import Consistency
from dledger.spark.chunks import Chunk, Chunker
from dledger.spark.columns import COLUMNS
from dledger.spark.refusal import in_one_sentence
from dledger.spark.source_options import Place, WriteOptions

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
VALUE = "value"


@dataclass
class Written(WriterCommitMessage):
    """The rows that one task appended, or found appended, and the rows left for the driver."""

    name: str
    epoch: int
    rows: int
    """All of the partition's."""
    rest: Chunk | None


def check_schema(schema: StructType, *, overwrite: bool) -> None:
    """Raises CONFIG_ERROR unless there is a column of records, and nothing that would be left out in silence."""
    if overwrite:
        raise ConfigError("a log cannot be overwritten: write with mode('append'), stream with outputMode('append')")
    names = [field.name for field in schema.fields]
    if VALUE not in names:
        raise ConfigError(
            f"the rows have no column value, but {', '.join(names)}: select what is to be appended as value"
        )
    kind = schema[VALUE].dataType
    if not isinstance(kind, BinaryType | StringType):
        raise ConfigError(f"column value is {kind.simpleString()}, and a record is bytes: cast it to binary or string")
    other = [name for name in names if name not in COLUMNS]
    if other:
        raise ConfigError(f"column {other[0]} would not be written: a record is its value alone; select('value')")


def append_full_chunks(place: Place, batches: Iterator[pa.RecordBatch], name: str, epoch: int) -> Written:
    """What a task does with its partition."""
    chunker = Chunker()
    with in_one_sentence():
        try:
            with _connect(place) as log, log.producer(name, epoch=epoch) as producer:
                for batch in batches:
                    for chunk in chunker.feed(batch, VALUE):
                        producer.enqueue_body(*chunk)
        except DLedgerError as refusal:
            raise_unless_written(refusal, name, epoch)
            return Written(name, epoch, 0, None)
    return Written(name, epoch, chunker.rows, chunker.rest())


def append_rests(place: Place, messages: Iterable[WriterCommitMessage | None]) -> None:
    """What the driver does, once all tasks have succeeded. Again, if need be."""
    with in_one_sentence(), _connect(place) as log:
        for message in messages:
            assert isinstance(message, Written), f"a task gave {message!r}"
            if message.rest is None:
                continue
            body, count = message.rest
            try:
                with log.producer(message.name, epoch=message.epoch, sequence=message.rows - count) as producer:
                    producer.enqueue_body(body, count)
            except DLedgerError as refusal:
                raise_unless_written(refusal, message.name, message.epoch)


def check_reachable(place: Place) -> None:
    """In the driver, before anything is run: a task would say the same, but only after as many attempts as it has.
    Raises Unavailable, and UNSUPPORTED for what is no dledger node."""
    with _connect(place) as log:
        log.bounds(Consistency.COMMITTED)


def _connect(place: Place) -> BlockingLog:
    return connect_blocking(
        place.endpoints, group=place.group, cluster_id=place.cluster_id, timeout_ms=place.timeout_ms
    )


def raise_unless_written(refusal: DLedgerError, name: str, epoch: int) -> None:
    """Returns if the refusal says that all of the epoch is in the log: a later one has begun."""
    if refusal.code is Code.PRODUCER_FENCED:
        return
    if refusal.code is Code.SEQUENCE_CONFLICT:
        text = (
            f"{name} was run again as number {epoch} with other rows, or another order, than before: what a retry "
            f"reads must be the same, nothing was doubled ({refusal})"
        )
        raise ConfigError(text) from refusal
    raise refusal


class BatchWriter(DataSourceArrowWriter):
    """``df.write``."""

    def __init__(self, options: WriteOptions) -> None:
        self._place = options.place
        self._name = options.app_id or uuid.uuid4().hex
        self._version = options.version

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task."""
        partition = _task().partitionId()
        return append_full_chunks(self._place, iterator, f"spark/{self._name}/{partition}", self._version)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the driver."""
        append_rests(self._place, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was appended stays: run the write again, under the same txnAppId and txnVersion, to complete it."""


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``."""

    def __init__(self, options: WriteOptions) -> None:
        self._place = options.place

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task."""
        task = _task()
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise ConfigError("the task was not told of its query and micro-batch: use Spark 4.2 or newer")
        return append_full_chunks(self._place, iterator, f"spark/{query}/{task.partitionId()}", int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """In the driver, before the micro-batch is noted as done. May be called again."""
        append_rests(self._place, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """The micro-batch comes again, under the same number: what was appended of it stays, and is found."""


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "written outside of a task"
    return task
