"""A fault test's history of 10⁸ operations judged by both engines: how long, in how much memory, with one verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from bench.machine import data_folder
from bench.results import save, show
from bench.scenarios.spark_session import spark_session
from bench.work import MeasurementFailed

ENGINES = ("local", "spark")


@click.command("spark-check")
@click.option("--operations", default=100_000_000, show_default=True, type=click.IntRange(1_000))
@click.option("--lost", default=3, show_default=True, type=click.IntRange(0), help="So many are left out at the end.")
@click.option("--master", default="local[2,3]", show_default=True)
def spark_check(*, operations: int, lost: int, master: str) -> None:
    """Seconds and memory of a verdict on the longest kind of history: no two of its records make a run."""
    appends = operations // 2
    if lost >= appends:
        raise click.UsageError(f"{operations} operations are {appends} appends: --lost is less than these")
    with spark_session(master):
        pass  # it can be had: asked before minutes go into the history
    from bench.scenarios.longest_history import write_history  # noqa: PLC0415  # pyarrow comes with Spark's extra

    with data_folder() as data:
        history = data / "history.parquet"
        write_history(history, appends, lost)
        rows = [_judge(history, engine, master, operations) for engine in ENGINES]
    if rows[0]["verdict"] != rows[1]["verdict"]:
        raise MeasurementFailed(f"the engines disagree: {rows[0]['verdict']} and {rows[1]['verdict']}")
    if rows[0]["verdict"]["lost"] != lost:
        raise MeasurementFailed(f"{lost} records are lost, and the verdict is {rows[0]['verdict']}")
    told = [{name: value for name, value in row.items() if name != "verdict"} for row in rows]
    show(told)
    save("spark-check", {"rows": rows, "operations": operations, "lost": lost}, told)


def _judge(history: Path, engine: str, master: str, operations: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "dledger", "spark", "check", str(history), "--engine", engine, "-o", "json"]
    began_s = time.monotonic()
    process = subprocess.Popen([*command, "--master", master], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)  # of all that it started, too, as far as that has ended
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began_s
    if not said:
        raise MeasurementFailed(f"the check by {engine} ended with {process.returncode}: it says why above")
    return {
        "engine": engine,
        "operations": operations,
        "seconds": round(seconds, 1),
        "operations_per_s": round(operations / seconds),
        "largest_process_mb": round(used.ru_maxrss * 1024 / 1e6),
        "verdict": json.loads(said),
    }
