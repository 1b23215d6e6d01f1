"""``python -m bench store-size``: the store with much in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from bench.results import UNPUBLISHED, save, show
from bench.scenarios.flags import INFLIGHT, names_in
from bench.store import many
from bench.store.cluster import StoreCluster, Tell, store_cluster
from bench.store.failures import failures
from bench.store.long_puts import long_puts
from bench.store.restarts import restarts
from bench.work import MeasurementFailed

GIGABYTE = 1e9
COST_BYTES = 200
"""Of a pair beside its value, in the log."""
LOG_STATES, SLACK_GB = 3, 1.0
"""A node's log takes so many times the state, and a gigabyte."""
PARTS = ("restart", "puts", "leases", "watches", "failover")
Result = dict[str, Any]


@click.command("store-size")
@click.option("--keys", default=1_000_000, show_default=True, type=click.IntRange(1))
@click.option("--size", default=100, show_default=True, type=click.IntRange(0, 1 << 20), help="Bytes a value.")
@click.option("--puts", default=2_000_000, show_default=True, type=click.IntRange(1), help="While the log is measured.")
@click.option("--inflight", default=64, show_default=True, type=INFLIGHT, help="Of these puts.")
@click.option("--leases", default=10_000, show_default=True, type=click.IntRange(1), help="That expire together.")
@click.option(
    "--ttl", default=30, show_default=True, type=click.IntRange(1), help="Seconds; longer than the grants take."
)
@click.option("--watches", default=10_000, show_default=True, type=click.IntRange(1), help="On one node.")
@click.option("--kills", default=20, show_default=True, type=click.IntRange(1), help="Of the leader.")
@click.option("--parts", default=",".join(PARTS), show_default=True, help="Which, comma-separated; all fill it first.")
def store_size(*, parts: str, keys: int, size: int, **counts: int) -> None:
    """Three nodes with a million keys: memory, restarts, checkpoints beside puts, the log's length, leases and watches
    by the ten thousand, and failover."""
    wished = names_in(parts)
    if unknown := [name for name in wished if name not in PARTS]:
        raise click.UsageError(f"there is no part {unknown[0]!r}: there are {', '.join(PARTS)}")
    needed_gb = 3 * (LOG_STATES * (keys + counts["puts"]) * (size + COST_BYTES) / GIGABYTE + SLACK_GB)
    result: Result = {"plan": {"keys": keys, "size_bytes": size, **counts, "parts": wished}}
    with store_cluster(needed_gb) as running:
        result["filled"] = _tell("fill: ", lambda tell: many.fill(running, keys, size, tell))
        try:
            for name in wished:
                result[name] = _tell(f"{name}: ", _part(name, running, keys, size, counts))
            result["memory_at_last"] = running.memory_mb()
        except MeasurementFailed as failure:
            result["failure"] = f"{name}: {failure}"
    rows = as_rows(result)
    show(rows)
    failed = result.get("failure")
    save("store-size", result, rows, folder=UNPUBLISHED if failed else None, is_whole=wished == list(PARTS))
    if failed:
        raise MeasurementFailed(failed)


def _tell(head: str, work: Callable[[Tell], Result]) -> Result:
    return work(lambda text: click.echo(head + text, err=True))


def _part(name: str, running: StoreCluster, keys: int, size: int, counts: dict[str, int]) -> Callable[[Tell], Result]:
    parts: dict[str, Callable[[Tell], Result]] = {
        "restart": lambda tell: restarts(running, keys, size, tell),
        "puts": lambda tell: long_puts(running, (keys, size, counts["inflight"]), counts["puts"], tell),
        "leases": lambda tell: many.leases(running, counts["leases"], counts["ttl"], tell),
        "watches": lambda tell: many.watches(running, counts["watches"], tell),
        "failover": lambda tell: failures(running, counts["kills"], tell),
    }
    return parts[name]


FIGURES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("keys", ("filled", "keys"), ""),
    ("the state, as the store counts it", ("filled", "state_mb"), "MB"),
    ("memory of the nodes once filled", ("filled", "memory", "now_mb"), "MB"),
    ("the most that they ever had until then", ("filled", "memory", "most_mb"), "MB"),
    ("restart right after a checkpoint", ("restart", "right_after_a_checkpoint", "applied_s"), "s"),
    ("the log then", ("restart", "right_after_a_checkpoint", "log_mb"), "MB"),
    ("restart with the log at its longest", ("restart", "log_at_its_longest", "applied_s"), "s"),
    ("the log then", ("restart", "log_at_its_longest", "log_mb"), "MB"),
    ("puts", ("puts", "puts"), ""),
    ("puts a second", ("puts", "puts_per_s"), ""),
    ("complete checkpoints meanwhile", ("puts", "checkpoints"), ""),
    ("puts lost while one is written", ("puts", "lost_percent"), "%"),
    ("elections meanwhile", ("puts", "elections"), ""),
    ("the log beyond 128 MiB, over the state, at most", ("puts", "most_times_state"), "×"),
    ("memory of the nodes behind the puts", ("puts", "memory", "now_mb"), "MB"),
    ("leases that expired together", ("leases", "leases"), ""),
    ("from the first to the last that was gone", ("leases", "gone_s"), "s"),
    ("from the new leader's election to the last", ("leases", "last_s"), "s"),
    ("watches on one node", ("watches", "watches"), ""),
    ("what they take of its memory", ("watches", "memory_mb_behind_puts"), "MB"),
    ("from a put to the last watch that told of it", ("watches", "last_s"), "s"),
    ("kill -9 of the leader to the next put, median", ("failover", "median_ms"), "ms"),
    ("the longest of them", ("failover", "worst_ms"), "ms"),
)


def as_rows(result: Result) -> list[Result]:
    """What was measured, for people."""
    rows = []
    for name, path, unit in FIGURES:
        if path[0] in result:
            rows.append({"": name, "figure": _text(figure(result, *path), unit)})
    return rows


def figure(result: Result, *path: str) -> Any:
    """Raises LookupError where it was not measured."""
    found: Any = result
    for key in path:
        found = found[key]
    return found


def _text(value: Any, unit: str) -> str:
    values = value if isinstance(value, list) else [value]
    return " / ".join("–" if each is None else f"{each:,}" for each in values) + f" {unit}".rstrip()
