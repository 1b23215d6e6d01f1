"""A refusal reaches the driver as one sentence, not as a worker's stack."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from dledger.common.errors import DLedgerError

_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""PySpark's own switch, looked at when a worker tells the driver what ended it; such a worker does not live on."""


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Around everything that Spark calls."""
    try:
        yield
    except DLedgerError:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise
