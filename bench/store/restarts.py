"""How long a follower's restart takes: right after a checkpoint, and with the log behind it at its longest."""

from __future__ import annotations

import time
from typing import Any

from bench.processes import wait_until
from bench.store.checkpoints import BEGINS, Span
from bench.store.cluster import LONGEST_S, StoreCluster, Tell
from bench.store.loading import Loading, loading
from bench.work import MeasurementFailed

NEARLY = 0.9
"""Of the puts from one checkpoint's beginning to the next one's: so many are behind the last one, or a few more."""
FILLING_INFLIGHT = 256
LONGEST_LOAD_S = 3600.0


def restarts(running: StoreCluster, keys: int, size: int, tell: Tell) -> dict[str, Any]:
    """The history is forgotten every second meanwhile: the state is that of the keys alone."""
    follower = running.follower()
    first_index = running.first_index(follower)
    load = (keys, size, FILLING_INFLIGHT, "--compacts")
    with loading(running, *load) as puts:
        first = _next_checkpoint(running, puts, time.time(), tell)
        first_revision = puts.revision_at(first.began_s)
    wait_until(
        lambda: running.first_index(follower) > first_index,
        "the log before the checkpoint is gone",
        timeout_s=LONGEST_S,
    )
    behind = {"log_mb": round(running.log_bytes(follower) / 1e6, 1)}
    after = {**behind, **running.restart(follower)}
    tell(f"restart right after a checkpoint: {after['applied_s']} s")
    with loading(running, *load) as puts:
        second = _next_checkpoint(running, puts, first.ended_s, tell)
        revision = puts.revision_at(second.began_s)
        _until_longest(running, puts, second, revision + int(NEARLY * (revision - first_revision)))
    behind = {"log_mb": round(running.log_bytes(follower) / 1e6, 1)}
    longest = {**behind, **running.restart(follower)}
    tell(f"restart with the log at its longest: {longest['applied_s']} s")
    return {"right_after_a_checkpoint": after, "log_at_its_longest": longest}


def _next_checkpoint(running: StoreCluster, puts: Loading, since_s: float, tell: Tell) -> Span:
    """The first complete one that begins behind ``since_s``; there are puts until its end."""
    deadline = time.monotonic() + LONGEST_LOAD_S
    tell("puts until a checkpoint is complete")
    while time.monotonic() < deadline:
        puts.next()
        for span in running.checkpoints.spans(since_s):
            if span.is_complete:
                tell(f"a checkpoint took {span.ended_s - span.began_s:.1f} s")
                return span
    raise MeasurementFailed(f"no checkpoint was complete within {LONGEST_LOAD_S:.0f} s of puts")


def _until_longest(running: StoreCluster, puts: Loading, last: Span, revision: int) -> None:
    """Puts until the store has ``revision``, or the next checkpoint begins."""
    while puts.next().revision < revision and not running.checkpoints.has(BEGINS, last.ended_s):
        pass
