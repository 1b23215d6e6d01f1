"""Whether an append, a get and a start cost the same however long the log is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bench.plots import plot_lines
from bench.results import RESULTS, save, show
from bench.scenarios.cluster import Cluster, cluster

FILL_S = 4.0
FILL_RECORD_BYTES = 4096
FILL_BATCH = 32
"""Frames of 128 KiB: a get that finds its frame in no cache reads, and checks, all of it."""
STEPS_MB = (1, 64, 512, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)


@click.command()
@click.option("--gigabytes", default=20.0, show_default=True, help="How long the log becomes; a node needs the room.")
@click.option("--nodes", default=1, show_default=True, type=click.IntRange(1))
@click.option("--duration", default=3.0, show_default=True, help="Seconds a measurement.")
def growth(*, gigabytes: float, nodes: int, duration: float) -> None:
    """Appends, gets, memory and starts, from a log of 1 MB to one of many GB."""
    steps = [step for step in STEPS_MB if step < gigabytes * 1000]
    rows = []
    with cluster(nodes) as running:
        for step_mb in (*steps, gigabytes * 1000):
            _fill(running, step_mb * 1e6)
            rows.append(_measure(running, duration))
            show(rows[-1:])
    name = f"growth-{nodes}"
    save(name, {"nodes": nodes, "rows": rows}, rows)
    _plot(rows, RESULTS / f"{name}.svg")


def _fill(running: Cluster, size_bytes: float) -> None:
    while running.data_bytes < size_bytes:
        flags = {"inflight": 16, "batch": FILL_BATCH, "size": FILL_RECORD_BYTES}
        running.bench("append", **flags, duration=FILL_S if size_bytes > 100e6 else 0.1)


def _measure(running: Cluster, duration_s: float) -> dict[str, Any]:
    log_gb = running.data_bytes / 1e9
    append = running.bench("append", inflight=256, duration=duration_s)
    get = running.bench("get", inflight=256, duration=duration_s)
    memory_mb = running.resident_mb()
    last = len(running.nodes) - 1
    running.end(last)
    clean_s = running.start(last)
    running.wait_ready()
    running.end(last, kill=True)
    killed_s = running.start(last)
    running.wait_ready()
    return {
        "log_gb": round(log_gb, 3),
        "append_per_s": append["records_per_s"],
        "append_p50_ms": append["p50_ms"],
        "append_core_us": round(append["server_core_s"] / append["records"] * 1e6, 2),
        "get_per_s": get["records_per_s"],
        "get_p50_ms": get["p50_ms"],
        "get_core_us": round(get["server_core_s"] / get["records"] * 1e6, 2),
        "memory_mb": round(memory_mb),
        "start_s": round(clean_s, 2),
        "start_after_kill_s": round(killed_s, 2),
    }


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    sizes = [row["log_gb"] for row in rows]
    series = {label: (sizes, [row[key] for row in rows]) for label, key in (
        ("append", "append_core_us"), ("get", "get_core_us"))}  # fmt: skip
    plot_lines(series, ("what a record costs the nodes as the log grows", "GB of log", "core-µs a record"), path)
