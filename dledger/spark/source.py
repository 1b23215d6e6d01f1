"""``spark.read.format("dledger")``: what Spark makes when the format is named."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from dledger.spark.batch_reader import BatchReader, PushingBatchReader
from dledger.spark.columns import sql_schema
from dledger.spark.options import ReadOptions, WriteOptions
from dledger.spark.refusal import in_one_sentence
from dledger.spark.sink import BatchWriter, StreamWriter, check_schema
from dledger.spark.stream_reader import StreamReader


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
            options = ReadOptions.parse(self.options)
            return PushingBatchReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Of ``readStream``."""
        with in_one_sentence():
            return StreamReader(ReadOptions.parse(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Of ``write``."""
        with in_one_sentence():
            check_schema(schema, overwrite=overwrite)
            return BatchWriter(WriteOptions.parse(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Of ``writeStream``."""
        with in_one_sentence():
            check_schema(schema, overwrite=overwrite)
            return StreamWriter(WriteOptions.parse(self.options))
