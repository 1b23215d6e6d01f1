"""One reader's stream, and gets at random places."""

from __future__ import annotations

from statistics import median

import click

from bench.results import save, show
from bench.scenarios.cluster import cluster

FILL_S = 4


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--duration", default=3.0, show_default=True, help="Seconds a measurement.")
def reads(*, rounds: int, duration: float) -> None:
    """Records a second through ``read`` by one reader, and through ``get`` (GetStream), linearizable."""
    with cluster(3) as running:
        running.bench("append", inflight=16, batch=1000, duration=FILL_S)
        streamed = [running.bench("read", duration=duration) for _ in range(rounds)]
        gets = {n: [running.bench("get", inflight=n, duration=duration) for _ in range(rounds)] for n in (1, 64, 256)}
    rows = [_row("read", streamed)] + [
        _row(f"get, {inflight} in flight", results) for inflight, results in gets.items()
    ]
    show(rows)
    save("reads", {"rows": rows}, rows)


def _row(work: str, results: list[dict[str, float]]) -> dict[str, object]:
    rates = sorted(result["records_per_s"] for result in results)
    return {
        "work": work,
        "records_per_s": round(median(rates)),
        "lowest": round(rates[0]),
        "highest": round(rates[-1]),
        "mb_per_s": median(result["mb_per_s"] for result in results),
        "p50_ms": median(result["p50_ms"] for result in results),
        "server_core_us": round(median(each["server_core_s"] / each["records"] * 1e6 for each in results), 2),
    }
