"""A follower was away: how fast it catches up, and what that costs the appends that go on meanwhile."""

from __future__ import annotations

import time
from typing import Any

import click

from bench.limits import SEQUENTIAL
from bench.machine import GIGABYTE
from bench.processes import Child
from bench.results import save, show
from bench.scenarios.cluster import FILL_RECORD_BYTES, Cluster, cluster
from bench.scenarios.flags import GIGABYTES, INFLIGHT, ROUNDS
from bench.scenarios.rounds import over_rounds
from bench.work import MeasurementFailed

POLL_S = 0.1
SETTLE_S = 2.0
CLOSE_FRAMES = 200
"""Behind by so few it has caught up: appends go on."""
LONGEST_S = 300.0
DISK_S = 1.0
APPENDED_GB = 1.0
"""By what is appended before and meanwhile, at most."""


@click.command()
@click.option("--rounds", default=3, show_default=True, type=ROUNDS, help="Each with a new cluster.")
@click.option("--gigabytes", default=2.0, show_default=True, type=GIGABYTES, help="What the follower misses.")
@click.option("--inflight", default=64, show_default=True, type=INFLIGHT, help="Appends of 128 B that go on meanwhile.")
def catchup(*, rounds: int, gigabytes: float, inflight: int) -> None:
    """MB/s of a follower that catches up while appends go on."""
    rows = []
    for number in range(rounds):
        rows.append({"round": number + 1, **_round(gigabytes * 1e9, inflight)})
        show(rows[-1:])
    table = over_rounds(rows)
    save("catchup", {"rows": table, "inflight": inflight}, table)


def _round(size_bytes: float, inflight: int) -> dict[str, Any]:
    with cluster(3, needed_gb=3 * (size_bytes / GIGABYTE + APPENDED_GB)) as running:
        disk_mb_per_s = SEQUENTIAL.rate(running.data_folder().parent, DISK_S)
        status = running.wait_ready()
        away = next(number for number in range(3) if f"n{number}" != status.leader)
        before = _rate(running, inflight)
        running.end(away)
        without = _rate(running, inflight)
        missed = len(running.fill(size_bytes)) * FILL_RECORD_BYTES
        load = running.begin("append", inflight=inflight, duration=2 * LONGEST_S)
        try:
            time.sleep(SETTLE_S)
            seconds, meanwhile = _catch_up(running, away, load)
        finally:
            load.end()
        elections, peak_mb = running.elections_since(status.term), running.peak_mb()
    return {
        "missed_gb": round(missed / 1e9, 2),
        "seconds": round(seconds, 2),
        "catch_up_mb_per_s": round(missed / 1e6 / seconds),
        "disk_mb_per_s": round(disk_mb_per_s),
        "of_disk": round(missed / 1e6 / seconds / disk_mb_per_s, 2),
        "appends_per_s_before": round(before),
        "appends_per_s_two_nodes": round(without),
        "appends_per_s_meanwhile": round(meanwhile),
        "share": round(meanwhile / before, 2),
        "elections": elections,
        "largest_node_mb": round(peak_mb),
    }


def _rate(running: Cluster, inflight: int) -> float:
    result = running.bench("append", inflight=inflight, duration=3)
    return float(result["records_per_s"])


def _catch_up(running: Cluster, away: int, load: Child) -> tuple[float, float]:
    """The seconds from its start until it is close behind, and appends a second meanwhile. Raises MeasurementFailed,
    also when the load has ended."""
    began, first = time.perf_counter(), _commit_index(running)
    running.start(away)
    while (spent := time.perf_counter() - began) < LONGEST_S:
        load.raise_if_ended()
        status = running.status()
        node = status.node(f"n{away}") if status else None
        if node is not None and node.lag_frames is not None and node.lag_frames < CLOSE_FRAMES:
            appended, until = _commit_index(running) - first, time.perf_counter() - began
            if not appended:
                raise MeasurementFailed("no append was acknowledged while the follower caught up")
            return spent, appended / until
        time.sleep(POLL_S)
    raise MeasurementFailed(f"the follower had not caught up within {LONGEST_S:.0f} s")


def _commit_index(running: Cluster) -> int:
    status = running.status()
    if status is None:
        raise MeasurementFailed("no node tells its status")
    return max(node.commit_index for node in status.nodes)
