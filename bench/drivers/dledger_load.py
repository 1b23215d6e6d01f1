"""Appends through our SDK: ``dledger_load.py ENDPOINTS``. Batches above 1 are ``append_many``."""

from __future__ import annotations

import os
import sys

from bench.drivers.python_load import Call, serve_stdin
from dledger.cli.runtime import run
from dledger.client import connect
from dledger.common.memory import keep_freed_memory


async def load(endpoints: str) -> None:
    """Until stdin ends."""
    async with connect(endpoints) as log:

        def call_of(batch: int, size: int) -> Call:
            record = os.urandom(size)
            records = [record] * batch
            return (lambda: log.enqueue(record)) if batch == 1 else (lambda: log.enqueue_many(records))

        await serve_stdin(call_of)


keep_freed_memory()  # as README tells a program that appends in bulk
run(load(sys.argv[1]))
