"""``spark.read.format("dledger")``: what Spark makes when the format is named."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import partial

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from dledger.common.errors import ConfigError
from dledger.spark.batch_reader import BatchReader, PushingBatchReader
from dledger.spark.columns import COLUMNS, sql_schema
from dledger.spark.refusal import in_one_sentence
from dledger.spark.sink import BatchWriter, StreamWriter, check_reachable, check_schema
from dledger.spark.source_options import ReadOptions, WriteOptions
from dledger.spark.stream_reader import StreamReader


def check_read_schema(schema: StructType, columns: Sequence[str]) -> None:
    """Raises CONFIG_ERROR if ``.schema(…)`` asks for other columns, or other types, than there are."""
    given = [f"{field.name} {field.dataType.simpleString()}" for field in schema.fields]
    there = [f"{name} {COLUMNS[name].sql_type}" for name in columns]
    if given != there:
        raise ConfigError(
            f"the schema asks for {', '.join(given)}, but the rows are {', '.join(there)}: leave schema() out, choose "
            "by the option columns, and cast what was read"
        )


class DLedgerDataSource(DataSource):
    """A log as a table: its records in order, and appends to it."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "dledger"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    def schema(self) -> str:
        """By the option ``columns``."""
        with in_one_sentence():
            return sql_schema(ReadOptions.parse(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of ``read``."""
        with in_one_sentence():
            options = self._checked(schema, streaming=False)
            return PushingBatchReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Of ``readStream``."""
        return StreamReader(partial(self._checked, schema, streaming=True))

    def _checked(self, schema: StructType, *, streaming: bool) -> ReadOptions:
        options = ReadOptions.parse(self.options, streaming=streaming)
        check_read_schema(schema, options.columns)
        return options

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Of ``write``."""
        with in_one_sentence():
            check_schema(schema, overwrite=overwrite)
            options = WriteOptions.parse(self.options)
            check_reachable(options.place)
            return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Of ``writeStream``."""
        with in_one_sentence():
            check_schema(schema, overwrite=overwrite)
            return StreamWriter(WriteOptions.parse(self.options, streaming=True))
