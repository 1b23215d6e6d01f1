"""What two nodes more cost: three and five in turn, with the same work."""

from __future__ import annotations

from statistics import median
from typing import Any

import click

from bench.results import save, show
from bench.scenarios.cluster import cluster
from bench.scenarios.flags import ROUNDS, SECONDS

SIZES = (3, 5)
WORKS = {"1 in flight": {"inflight": 1}, "256 in flight": {"inflight": 256}, "bulk": {"inflight": 16, "batch": 1000}}


@click.command()
@click.option("--rounds", default=3, show_default=True, type=ROUNDS)
@click.option("--duration", default=3.0, show_default=True, type=SECONDS, help="Seconds a measurement.")
def members(*, rounds: int, duration: float) -> None:
    """Three nodes against five."""
    results: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for number in range(rounds):
        for nodes in SIZES if number % 2 == 0 else reversed(SIZES):
            with cluster(nodes) as running:
                for work, flags in WORKS.items():
                    running.bench("append", **flags, duration=1)
                    results.setdefault((work, nodes), []).append(running.bench("append", **flags, duration=duration))
    rows = [_row(work, *(results[work, nodes] for nodes in SIZES)) for work in WORKS]
    show(rows)
    save("members", {"rows": rows}, rows)


def _row(work: str, three: list[dict[str, Any]], five: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [median(each["records_per_s"] for each in results) for results in (three, five)]
    p50s = [median(each["p50_ms"] for each in results) for results in (three, five)]
    cores = [median(each["server_core_s"] / each["records"] * 1e6 for each in results) for results in (three, five)]
    return {
        "work": work,
        "three_per_s": round(rates[0]),
        "five_per_s": round(rates[1]),
        "rate": f"1 / {rates[0] / rates[1]:.2f}",
        "p50_ms": f"{p50s[0]:.2f} → {p50s[1]:.2f}",
        "core_us": f"{cores[0]:.2f} → {cores[1]:.2f}",
        "cost_times": round(cores[1] / cores[0], 2),
    }
