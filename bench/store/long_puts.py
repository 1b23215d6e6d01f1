"""Puts for long: what checkpoints take of them, and how long the log becomes beside the state."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.store.checkpoints import Span
from bench.store.cluster import StoreCluster, Tell
from bench.store.loading import Loading, loading, rate, share_during

SAMPLE_WINDOWS = 8
"""Every two seconds the log is measured."""
TELL_SAMPLES = 15
SLACK_BYTES = 128 << 20
MOST_TIMES = 4
"""Without a checkpoint the load goes on up to so many times the puts that were asked for."""


def long_puts(running: StoreCluster, load_flags: tuple[int, int, int], puts: int, tell: Tell) -> dict[str, Any]:
    """At least so many puts, and until a checkpoint is complete. ``load_flags``: keys, size, in flight."""
    term = running.term()
    samples: list[dict[str, float]] = []
    with loading(running, *load_flags) as load:
        since_s = load.next().ended_s
        while not _is_enough(load, puts, running.checkpoints.spans(since_s)):
            load.next()
            if len(load.windows) % SAMPLE_WINDOWS == 0:
                samples.append(_sample(running, load.puts))
                if len(samples) % TELL_SAMPLES == 1:
                    tell(_told(samples[-1]))
    spans = running.checkpoints.spans(since_s)
    return {
        "puts": load.puts,
        "puts_per_s": round(rate(load.windows)),
        "errors": sum(each.errors for each in load.windows),
        "elections": running.term() - term,
        **_checkpoints(load, spans),
        "most_times_state": max(each["times_state"] for each in samples),
        "memory": running.memory_mb(),
        "log_samples": samples,
    }


def _is_enough(load: Loading, puts: int, spans: list[Span]) -> bool:
    has_checkpoint = any(span.is_complete for span in spans)
    has_sample = len(load.windows) >= SAMPLE_WINDOWS
    return has_sample and load.puts >= (puts if has_checkpoint else MOST_TIMES * puts)


def _sample(running: StoreCluster, puts: int) -> dict[str, float]:
    """``times_state``: the log of the node that has most, but for the slack that every log may have."""
    log_bytes = max(map(running.log_bytes, running.numbers))
    state_bytes = running.state_bytes()
    return {
        "puts": puts,
        "log_mb": round(log_bytes / 1e6, 1),
        "state_mb": round(state_bytes / 1e6, 1),
        "times_state": round(max(0, log_bytes - SLACK_BYTES) / state_bytes, 2),
    }


def _told(sample: dict[str, float]) -> str:
    return f"{sample['puts']:,} puts, {sample['log_mb']:,} MB of log, {sample['state_mb']:,} MB of state"


def _checkpoints(load: Loading, spans: list[Span]) -> dict[str, Any]:
    """The share of puts that is lost while one is written, of each and in the middle."""
    complete = [span for span in spans if span.is_complete]
    shares = [share_during(span, load.windows, spans) for span in complete]
    lost = [round((1 - share) * 100, 1) for share in shares if share is not None]
    return {
        "checkpoints": len(complete),
        "checkpoints_not_completed": len(spans) - len(complete),
        "checkpoint_s": [round(span.ended_s - span.began_s, 2) for span in complete],
        "lost_percent_each": lost,
        "lost_percent": median(lost) if lost else None,
    }
