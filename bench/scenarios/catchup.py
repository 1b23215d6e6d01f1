"""A follower was away: how fast it catches up, and what that costs the appends that go on meanwhile."""

from __future__ import annotations

import time

import click

from bench.results import save, show
from bench.scenarios.cluster import Cluster, cluster
from bench.work import MeasurementFailed

FILL_RECORD_BYTES = 4096
FILL_BATCH = 32
POLL_S = 0.1
SETTLE_S = 2.0
CLOSE_FRAMES = 200
"""Behind by so few it has caught up: appends go on."""
LONGEST_S = 300.0


@click.command()
@click.option("--gigabytes", default=2.0, show_default=True, help="What the follower misses.")
@click.option("--inflight", default=64, show_default=True, help="Appends of 128 B that go on meanwhile.")
def catchup(*, gigabytes: float, inflight: int) -> None:
    """MB/s of a follower that catches up while appends go on."""
    with cluster(3) as running:
        status = running.wait_ready()
        away = next(number for number in range(3) if f"n{number}" != status.leader)
        before = _rate(running, inflight)
        running.end(away)
        without = _rate(running, inflight)
        missed = _miss(running, gigabytes * 1e9)
        load = running.begin("append", inflight=inflight, duration=LONGEST_S)
        time.sleep(SETTLE_S)
        seconds, meanwhile = _catch_up(running, away)
        load.end()
    row = {
        "missed_gb": round(missed / 1e9, 2),
        "seconds": round(seconds, 2),
        "catch_up_mb_per_s": round(missed / 1e6 / seconds),
        "appends_per_s_before": round(before),
        "appends_per_s_two_nodes": round(without),
        "appends_per_s_meanwhile": round(meanwhile),
        "share": round(meanwhile / before, 2),
    }
    show([row])
    save("catchup", row, [row])


def _rate(running: Cluster, inflight: int) -> float:
    result = running.bench("append", inflight=inflight, duration=3)
    return float(result["records_per_s"])


def _miss(running: Cluster, size_bytes: float) -> int:
    done = 0
    while done < size_bytes:
        result = running.bench("append", inflight=16, batch=FILL_BATCH, size=FILL_RECORD_BYTES, duration=2)
        done += result["records"] * FILL_RECORD_BYTES
    return done


def _catch_up(running: Cluster, away: int) -> tuple[float, float]:
    """The seconds from its start until it is close behind, and appends a second meanwhile."""
    first = _commit_index(running)
    began = time.perf_counter()
    running.start(away)
    while (spent := time.perf_counter() - began) < LONGEST_S:
        status = running.status()
        node = status.node(f"n{away}") if status else None
        if node is not None and node.lag_frames is not None and node.lag_frames < CLOSE_FRAMES:
            return spent, (_commit_index(running) - first) / spent
        time.sleep(POLL_S)
    raise MeasurementFailed(f"the follower had not caught up within {LONGEST_S:.0f} s")


def _commit_index(running: Cluster) -> int:
    status = running.status()
    if status is None:
        raise MeasurementFailed("no node tells its status")
    return max(node.commit_index for node in status.nodes)
