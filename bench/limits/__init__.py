"""What the machine can do, measured beside everything else: every figure of ours stands as a share of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.limits import disk, empty_grpc, network, three_copies
from bench.work import Outcome

Measure = Callable[[Path, float], Outcome]


@dataclass(frozen=True, slots=True)
class Limit:
    """One of them. ``unit``: what its rate counts; ``scale`` makes that of ``records_per_s``. ``tells_p50``: of some
    only a mean is known."""

    name: str
    measure: Measure
    unit: str
    scale: float = 1.0
    tells_p50: bool = True

    def rate(self, data: Path, duration_s: float) -> float:
        """Measures it, in its unit."""
        return self.measure(data, duration_s).records_per_s * self.scale


SEQUENTIAL = Limit(
    "disk, 1 MiB + fdatasync", lambda data, s: disk.synced_writes(data, disk.CHUNK_BYTES, s), "MB/s", 1.048576
)
FSYNC = Limit("disk, 4 KiB + fdatasync", lambda data, s: disk.synced_writes(data, disk.SMALL_BYTES, s), "/s")
STREAM = Limit("loopback, one stream", lambda _, s: network.stream(s), "MB/s", 1.048576, tells_p50=False)
PING_PONG = Limit("loopback, uvloop ping-pong", lambda _, s: network.ping_pong(s), "/s")
THREE_COPIES = Limit("three synced copies", three_copies.three_copies, "records/s")
EMPTY_GRPC = Limit("empty grpc.aio service", empty_grpc.empty_grpc, "calls/s", tells_p50=False)

LIMITS_TURN = "limits"
"""What their turn is called, among the systems'."""
LIMITS = (SEQUENTIAL, FSYNC, STREAM, PING_PONG, THREE_COPIES, EMPTY_GRPC)
