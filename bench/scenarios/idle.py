"""What nodes cost that have nothing to do."""

from __future__ import annotations

import time

import click

from bench.results import save, show
from bench.scenarios.cluster import cluster
from bench.scenarios.flags import NODES, SECONDS

SETTLE_S = 3.0


@click.command()
@click.option("--nodes", default=5, show_default=True, type=NODES)
@click.option("--duration", default=20.0, show_default=True, type=SECONDS, help="Seconds.")
def idle(*, nodes: int, duration: float) -> None:
    """Processor time and memory of idle nodes."""
    with cluster(nodes) as running:
        time.sleep(SETTLE_S)
        used = running.core_s()
        time.sleep(duration)
        share = (running.core_s() - used) / duration
        row = {"nodes": nodes, "cores_percent": round(share * 100, 1), "memory_mb": round(running.peak_mb())}
    show([row])
    save("idle", row, [row])
