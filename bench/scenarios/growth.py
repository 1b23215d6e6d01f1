"""Whether an append, a get and a start cost the same however long the log is.

The log grows by records of 4 KiB, step by step. Between the steps single records of 128 B are appended for a while, and
measured; a row's ``log_gb`` has them too. The gets that are measured are of the 4 KiB records alone, at random all over
the log. ``cached_gb``: how much of the leader's files lies in the page cache before them → behind them: what was read
stays there as long as the kernel likes; what was written stays for a segment or two. ``again`` are gets of ``PLACES``
records, all over the log as well, that were read just before: what the log's length costs, without the device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bench.plots import plot_lines
from bench.results import save, show
from bench.scenarios.cluster import FILL_RECORD_BYTES, Cluster, cluster
from bench.scenarios.flags import GIGABYTES, NODES, SECONDS

INFLIGHT = 256
PLACES = 4096
SMALL_SHARE = 0.25
"""What the single records add to what is filled, at most."""
STEPS_MB = (1, 64, 512, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)


@click.command()
@click.option(
    "--gigabytes", default=20.0, show_default=True, type=GIGABYTES, help="How long the log becomes, on each node."
)
@click.option("--nodes", default=1, show_default=True, type=NODES)
@click.option("--duration", default=3.0, show_default=True, type=SECONDS, help="Seconds a measurement.")
def growth(*, gigabytes: float, nodes: int, duration: float) -> None:
    """Appends, gets, memory and starts, from a log of 1 MB to one of many GB."""
    steps = [step for step in STEPS_MB if step < gigabytes * 1000]
    rows = []
    filled: list[range] = []
    with cluster(nodes, needed_gb=nodes * gigabytes * (1 + SMALL_SHARE)) as running:
        for step_mb in (*steps, gigabytes * 1000):
            filled.append(running.fill(step_mb * 1e6 - sum(map(len, filled)) * FILL_RECORD_BYTES))
            rows.append(_measure(running, filled, duration))
            show(rows[-1:])
    name = f"growth-{nodes}"
    folder = save(name, {"nodes": nodes, "rows": rows}, rows)
    _plot(rows, folder / f"{name}.svg")


def _measure(running: Cluster, filled: list[range], duration_s: float) -> dict[str, Any]:
    log_gb = running.data_bytes / 1e9
    append = running.bench("append", inflight=INFLIGHT, duration=duration_s)
    leader = running.leader()
    cached_before = running.cached_gb(leader)
    indexes = ",".join(f"{each.start}:{each.stop}" for each in filled)
    get = running.client("get", duration_s, INFLIGHT, indexes)
    cached_behind = running.cached_gb(leader)
    for _ in range(2):  # the first time they are brought
        again = running.client("get", duration_s, INFLIGHT, indexes, "--places", PLACES)
    memory_mb = running.peak_mb()
    last = len(running.nodes) - 1
    running.end(last)
    clean_s = running.start(last)
    running.wait_ready()
    running.end(last, kill=True)
    killed_s = running.start(last)
    running.wait_ready()
    return {
        "filled_gb": round(sum(map(len, filled)) * FILL_RECORD_BYTES / 1e9, 3),
        "log_gb": round(log_gb, 3),
        "append_per_s": append["records_per_s"],
        "append_p50_ms": append["p50_ms"],
        "append_core_us": round(append["server_core_s"] / append["records"] * 1e6, 2),
        "get_per_s": get["records_per_s"],
        "get_p50_ms": get["p50_ms"],
        "get_core_us": round(get["server_core_s"] / get["records"] * 1e6, 2),
        "cached_gb": f"{cached_before} → {cached_behind}",
        "again_per_s": again["records_per_s"],
        "again_core_us": round(again["server_core_s"] / again["records"] * 1e6, 2),
        "memory_mb": round(memory_mb),
        "start_s": round(clean_s, 2),
        "start_after_kill_s": round(killed_s, 2),
    }


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    sizes = [row["log_gb"] for row in rows]
    series = {label: (sizes, [row[key] for row in rows]) for label, key in (
        ("append", "append_core_us"), ("get", "get_core_us"), ("get again", "again_core_us"))}  # fmt: skip
    plot_lines(series, ("what a record costs the nodes as the log grows", "GB of log", "core-µs a record"), path)
