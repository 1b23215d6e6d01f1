"""The leader is killed, again and again: how long until an append is acknowledged. And no load may do the same."""

from __future__ import annotations

import time
from statistics import median

import click

from bench.results import save, show
from bench.scenarios.cluster import Cluster, cluster
from bench.work import MeasurementFailed
from dledger.cli.cluster import MAX_NODES
from dledger.common.errors import DeadlineExceeded, OutcomeUnknown, Unavailable

LOAD_S = 20
BEFORE_KILL_S = 0.5
LONGEST_GAP_S = 120.0


@click.command()
@click.option("--kills", default=50, show_default=True, type=click.IntRange(1))
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(3, MAX_NODES))
def failover(*, kills: int, nodes: int) -> None:
    """Milliseconds from kill -9 of the leader to the next acknowledgement."""
    with cluster(nodes) as running:
        term = running.term()
        running.bench("append", inflight=256, duration=LOAD_S / 2)
        running.bench("append", inflight=16, batch=1000, duration=LOAD_S / 2)
        terms_by_load = running.elections_since(term)
        gaps_ms = [_kill_leader(running, number, kills) for number in range(kills)]
    row = {
        "kills": kills,
        "median_ms": round(median(gaps_ms)),
        "p90_ms": round(sorted(gaps_ms)[int(0.9 * (kills - 1))]),
        "worst_ms": round(max(gaps_ms)),
        "elections_by_load": terms_by_load,
    }
    show([row])
    save("failover", {**row, "gaps_ms": gaps_ms}, [row])


def _append_whatever_it_takes(running: Cluster, victim: int) -> None:
    """A deadline that passes is a part of the gap, and is told as one. Raises MeasurementFailed where another node has
    ended, too, or nobody takes an append for ``LONGEST_GAP_S``."""
    end = time.monotonic() + LONGEST_GAP_S
    while time.monotonic() < end:
        try:
            running.log.append(b"the first behind the kill")
        except (DeadlineExceeded, OutcomeUnknown, Unavailable) as failure:
            click.echo(f"not yet: {failure}", err=True)
            for number, node in enumerate(running.nodes):
                if number != victim:
                    node.raise_if_ended()
        else:
            return
    raise MeasurementFailed(f"no append was acknowledged within {LONGEST_GAP_S:.0f} s of the kill")


def _kill_leader(running: Cluster, number: int, kills: int) -> float:
    victim = running.leader()
    end = time.perf_counter() + BEFORE_KILL_S
    while time.perf_counter() < end:
        running.log.append(b"one of many")
    killed = time.perf_counter()
    running.end(victim, kill=True)
    _append_whatever_it_takes(running, victim)
    gap_ms = (time.perf_counter() - killed) * 1000
    running.start(victim)
    click.echo(f"kill {number + 1} of {kills}: {gap_ms:.0f} ms", err=True)
    return gap_ms
