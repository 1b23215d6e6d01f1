"""The longest kind of history that a fault test leaves: no two of its records make a run. Needs numpy and pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dledger.kernels.history import APPEND, FINAL, HISTORY_SCHEMA, NOWHERE, OK, PROCESS_SHIFT, Column

PROCESSES = 30
READER = 1_000
ROWS_AT_A_TIME = 1_000_000
APPEND_EVERY_NS = 1_000
APPEND_TAKES_NS = 20_000


def write_history(file: Path, appends: int, lost: int) -> None:
    """Single appends of processes that take turns, each acknowledged; then all but ``lost`` of them read one by one."""
    missing = np.random.default_rng(1).choice(appends, lost, replace=False)
    with pq.ParquetWriter(file, HISTORY_SCHEMA, compression="zstd") as out:
        for index in _runs(appends):
            begun_ns = index * APPEND_EVERY_NS
            call = index // PROCESSES
            out.write_table(_rows(APPEND, index, index % PROCESSES, call, (begun_ns, begun_ns + APPEND_TAKES_NS)))
        end_ns = appends * APPEND_EVERY_NS + APPEND_TAKES_NS
        for index in _runs(appends):
            kept = index[~np.isin(index, missing)]
            out.write_table(_rows(FINAL, kept, READER, 0, (end_ns + 1, end_ns + 2), read=(0, appends)))


def _runs(appends: int) -> Iterator[Column]:
    for first in range(0, appends, ROWS_AT_A_TIME):
        yield np.arange(first, min(first + ROWS_AT_A_TIME, appends), dtype=np.int64)


def _rows(
    kind: str,
    index: Column,
    process: Column | int,
    call: Column | int,
    at_ns: tuple[Column | int, Column | int],
    *,
    read: tuple[int, int] = (NOWHERE, NOWHERE),
) -> pa.Table:
    numbers = {
        "process": process,
        "call": call,
        "invoked_ns": at_ns[0],
        "completed_ns": at_ns[1],
        "first_value": (index % PROCESSES) << PROCESS_SHIFT | index // PROCESSES,
        "first_index": index,
        "count": 1,
        "term": 1,
        "read_start": read[0],
        "read_end": read[1],
    }
    words = {"kind": kind, "outcome": OK, "node": "", "error": ""}
    columns = {name: pa.array(np.broadcast_to(np.int64(each), index.shape)) for name, each in numbers.items()}
    columns |= {name: pa.repeat(word, len(index)) for name, word in words.items()}
    return pa.table([columns[name] for name in HISTORY_SCHEMA.names], schema=HISTORY_SCHEMA)
