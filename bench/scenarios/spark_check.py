"""A fault test's history of 10⁸ operations judged by both engines: how long, in how much memory, with one verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.results import save, show
from bench.work import MeasurementFailed
from dledger.kernels.history import APPEND, FINAL, HISTORY_SCHEMA, NOWHERE, OK, PROCESS_SHIFT, Column

PROCESSES = 30
READER = 1_000
ROWS_AT_A_TIME = 1_000_000
APPEND_EVERY_NS = 1_000
APPEND_TAKES_NS = 20_000
ENGINES = ("local", "spark")


@click.command("spark-check")
@click.option("--operations", default=100_000_000, show_default=True, type=click.IntRange(1_000))
@click.option("--lost", default=3, show_default=True, type=click.IntRange(0), help="So many are left out at the end.")
@click.option("--master", default="local[2,3]", show_default=True)
def spark_check(*, operations: int, lost: int, master: str) -> None:
    """Seconds and memory of a verdict on the longest kind of history: no two of its records make a run."""
    with tempfile.TemporaryDirectory(prefix="dledger-bench-check-") as data:
        history = Path(data) / "history.parquet"
        _write(history, operations // 2, lost)
        rows = [_judge(history, engine, master, operations) for engine in ENGINES]
    if rows[0]["verdict"] != rows[1]["verdict"]:
        raise MeasurementFailed(f"the engines disagree: {rows[0]['verdict']} and {rows[1]['verdict']}")
    if rows[0]["verdict"]["lost"] != lost:
        raise MeasurementFailed(f"{lost} records are lost, and the verdict is {rows[0]['verdict']}")
    told = [{name: value for name, value in row.items() if name != "verdict"} for row in rows]
    show(told)
    save("spark-check", {"rows": rows, "operations": operations, "lost": lost}, told)


def _write(file: Path, appends: int, lost: int) -> None:
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


def _judge(history: Path, engine: str, master: str, operations: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "dledger", "spark", "check", str(history), "--engine", engine, "-o", "json"]
    began_s = time.monotonic()
    process = subprocess.Popen([*command, "--master", master], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)  # of all that it started, too, as far as that has ended
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began_s
    return {
        "engine": engine,
        "operations": operations,
        "seconds": round(seconds, 1),
        "operations_per_s": round(operations / seconds),
        "largest_process_mb": round(used.ru_maxrss * 1024 / 1e6),
        "verdict": json.loads(said),
    }
