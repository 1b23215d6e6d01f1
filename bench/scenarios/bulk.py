"""Bulk for as long as one likes: every byte is kept, and no file is written twice."""

from __future__ import annotations

import os
from statistics import median

import click

from bench.compare import data_folder
from bench.limits.three_copies import Kept, three_copies
from bench.results import save, show
from bench.scenarios.cluster import cluster

INFLIGHT, BATCH = 16, 1000


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--duration", default=30.0, show_default=True, help="Seconds a measurement; each writes 1 GB a second.")
def bulk(*, rounds: int, duration: float) -> None:
    """Records a second of 128 B in batches, in turns with three synced copies that are kept as well."""
    rows = []
    for number in range(1, rounds + 1):
        rows.append({"round": number, **_ours(duration), **_limit(duration)})
        rows[-1]["share"] = round(rows[-1]["records_per_s"] / rows[-1]["limit_records_per_s"], 2)
        show(rows[-1:])
    middle = {name: median(row[name] for row in rows) for name in rows[0] if name != "round"}
    save("bulk", {"rows": rows}, [*rows, {"round": "median", **middle}])


def _ours(duration_s: float) -> dict[str, float]:
    with cluster(3) as running:
        result = running.bench("append", inflight=INFLIGHT, batch=BATCH, duration=duration_s)
        written_bytes, resident_mb = running.data_bytes, running.resident_mb()
    os.sync()  # what the disk still has to do is not the other one's burden
    return {
        "records_per_s": round(result["records_per_s"]),
        "mb_per_s": result["mb_per_s"],
        "p99_ms": result["p99_ms"],
        "a_node_keeps_gb": round(written_bytes / 1e9, 1),
        "largest_node_mb": round(resident_mb),
    }


def _limit(duration_s: float) -> dict[str, float]:
    with data_folder() as data:
        outcome = three_copies(data, duration_s, Kept)
    os.sync()
    return {"limit_records_per_s": round(outcome.records / outcome.duration_s)}
