"""One reader's stream, and gets at random places."""

from __future__ import annotations

from statistics import median
from typing import Any

import click

from bench.limits import PING_PONG, STREAM
from bench.report import NONE
from bench.results import save, show
from bench.scenarios.cluster import cluster
from bench.scenarios.flags import ROUNDS, SECONDS

FILL_S = 4
ONE_GET = "get, 1 in flight"


@click.command()
@click.option("--rounds", default=3, show_default=True, type=ROUNDS)
@click.option("--duration", default=3.0, show_default=True, type=SECONDS, help="Seconds a measurement.")
def reads(*, rounds: int, duration: float) -> None:
    """Records a second of one reader, and through ``get`` (GetStream); all linearizable.

    ``read_batches`` hands each batch over as it was appended, and no record of it is looked at; ``read`` makes an entry
    of every record. Latencies are of a batch and of a get.
    """
    with cluster(3) as running:
        bytes_mb_per_s, pings_per_s = (each.rate(running.data_folder(), duration) for each in (STREAM, PING_PONG))
        running.bench("append", inflight=16, batch=1000, duration=FILL_S)
        batches = [running.bench("read", duration=duration) for _ in range(rounds)]
        records = [running.client("read", duration) for _ in range(rounds)]
        log_gb, cached_gb = running.data_bytes / 1e9, running.cached_gb(running.leader())
        gets = {n: [running.bench("get", inflight=n, duration=duration) for _ in range(rounds)] for n in (1, 64, 256)}
    works = {"read_batches": batches, "read": records}
    works |= {f"get, {inflight} in flight": results for inflight, results in gets.items()}
    rows = [_row(work, results, bytes_mb_per_s, pings_per_s) for work, results in works.items()]
    show(rows)
    click.echo(f"of a log of {log_gb:.2f} GB a node, {cached_gb} GB of it in the page cache of the leader's files")
    save("reads", {"rows": rows, "log_gb": round(log_gb, 2), "cached_gb": cached_gb}, rows)


def _row(work: str, results: list[dict[str, Any]], bytes_mb_per_s: float, pings_per_s: float) -> dict[str, object]:
    """Beside what one stream of the loopback carries, and how often one message goes there and back on it."""
    rates = sorted(result["records_per_s"] for result in results)
    p50s_ms = [result["p50_ms"] for result in results if result["p50_ms"] is not None]
    return {
        "work": work,
        "records_per_s": round(median(rates)),
        "lowest": round(rates[0]),
        "highest": round(rates[-1]),
        "mb_per_s": (mb_per_s := median(result["mb_per_s"] for result in results)),
        "of_loopback": _share(work, mb_per_s / bytes_mb_per_s, median(rates) / pings_per_s),
        "p50_ms": median(p50s_ms) if p50s_ms else NONE,
        "server_core_us": round(median(each["server_core_s"] / each["records"] * 1e6 for each in results), 2),
    }


def _share(work: str, of_a_stream: float, of_ping_pongs: float) -> str:
    """Of what bounds it: nothing here bounds gets that share messages."""
    if work.startswith("read"):
        return f"{of_a_stream:.1%} of a stream"
    return f"{of_ping_pongs:.0%} of ping-pongs" if work == ONE_GET else NONE
