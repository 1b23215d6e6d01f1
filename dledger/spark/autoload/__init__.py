"""Installed as ``pyspark_dledger`` too: by that name a Spark session finds the format without being told of it."""

from dledger.spark.source import DLedgerDataSource as DefaultSource

__all__ = ["DefaultSource"]
