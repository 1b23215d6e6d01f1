"""The leader of the store is killed: how long until the next put succeeds."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import click

from bench.store.cluster import StoreCluster, Tell
from bench.work import MeasurementFailed
from dledger.common.errors import DeadlineExceeded, OutcomeUnknown, Unavailable

BEFORE_KILL_S = 0.5
LONGEST_GAP_S = 120.0


def failures(running: StoreCluster, kills: int, tell: Tell) -> dict[str, Any]:
    """Milliseconds from kill -9 to the next put that is answered, again and again."""
    gaps_ms = []
    for number in range(kills):
        gaps_ms.append(_kill_leader(running))
        tell(f"kill {number + 1} of {kills}: {gaps_ms[-1]:.0f} ms")
    return {
        "kills": kills,
        "median_ms": round(median(gaps_ms)),
        "worst_ms": round(max(gaps_ms)),
        "gaps_ms": [round(each) for each in gaps_ms],
    }


def _kill_leader(running: StoreCluster) -> float:
    victim = running.leader()
    end = time.perf_counter() + BEFORE_KILL_S
    while time.perf_counter() < end:
        running.store.put("killed", "one of many")
    killed = time.perf_counter()
    running.nodes.end(victim, kill=True)
    _put_whatever_it_takes(running)
    gap_ms = (time.perf_counter() - killed) * 1000
    wanted = running.applied_index(running.leader())
    running.nodes.start(victim)
    running.wait_applied(victim, wanted)
    return gap_ms


def _put_whatever_it_takes(running: StoreCluster) -> None:
    """A deadline that passes is a part of the gap, and is told as one."""
    end = time.monotonic() + LONGEST_GAP_S
    while time.monotonic() < end:
        try:
            running.store.put("killed", "the first behind the kill")
        except (DeadlineExceeded, OutcomeUnknown, Unavailable) as failure:
            click.echo(f"not yet: {failure}", err=True)
        else:
            return
    raise MeasurementFailed(f"no put was answered within {LONGEST_GAP_S:.0f} s of the kill")
