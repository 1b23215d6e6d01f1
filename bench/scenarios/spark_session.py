"""Spark for a scenario, asked for before anything is filled or written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.work import PeerMissing
from dledger.cli.spark_session import require_extra
from dledger.common.errors import DLedgerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """Ended with its JVM behind the block. Raises PeerMissing where there is no Spark, no Java for it, or no answer
    from ``master``."""
    try:
        require_extra()
        from dledger.spark.session import ended_quietly, local_session  # noqa: PLC0415  # Spark is an extra

        session = local_session("bench", master=master)
    except DLedgerError as reason:
        raise PeerMissing(str(reason)) from None
    try:
        yield session
    finally:
        ended_quietly(session)
