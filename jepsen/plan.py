"""What a run is to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """Also written down, as plan.json."""

    workload: str
    nemeses: tuple[str, ...]
    clients: int
    time_limit_s: float
    on_s: float
    off_s: float
    nodes: int = 5
    client: str = "sdk"
    batch: int = 1
    record_bytes: int = 16
    rate_per_s: float = 0.0
    """Appends, or operations, a second of all clients together; 0: as fast as they are answered."""
    call_timeout_ms: float = 5_000
    seed: int = 0
    hosts: str = "netns"
    """netns; compose; or ssh:ADDRESS,ADDRESS,…"""
    settle_s: float = 120.0
    """How long the cluster may take to come to rest after the last fault, and a read at the end."""
