"""The log in Spark: ``spark.read.format("dledger")``, ``readStream``, ``write`` and ``writeStream``.

Needs the extra: ``pip install 'dledger[spark]'``. A session of Spark 4.2 or newer finds the format by itself
(``pyspark_dledger``, installed beside); ``register`` tells one that does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.spark.session import local_session
from dledger.spark.source import DLedgerDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DLedgerDataSource", "local_session", "register"]


def register(spark: SparkSession) -> None:
    """Makes the format known to a session."""
    spark.dataSource.register(DLedgerDataSource)
