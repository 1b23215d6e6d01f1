"""What a system is given to do, and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Work:
    """``inflight`` calls are kept going, each with ``batch`` records of ``size_bytes``."""

    name: str
    inflight: int
    batch: int = 1
    size_bytes: int = 128


SINGLE_WORKS = (Work("1 in flight", 1), Work("64 in flight", 64), Work("256 in flight", 256))
BULK = "bulk"
"""Each peer's own best way for many records: its ``bulk``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one measurement gave. ``core_s`` are seconds of processor time within it, from /proc."""

    records: int
    errors: int
    duration_s: float
    p50_ms: float
    p99_ms: float
    server_core_s: float
    client_core_s: float
    is_steady: bool = True
    """Whether what is compiled while it runs had come to a steady rate before."""

    @property
    def records_per_s(self) -> float:
        return self.records / self.duration_s

    def without_errors(self) -> Outcome:
        """Itself. Raises MeasurementFailed where a call failed."""
        if self.errors:
            raise MeasurementFailed(f"{self.errors} calls failed")
        return self

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "records_per_s": self.records_per_s}


class PeerMissing(Exception):
    """The peer cannot be had on this machine; the message says why."""


class MeasurementFailed(Exception):
    """A system did not start, or did not do its work; the message says where to look."""
