"""How every load generator is spoken to, whatever language it is written in.

    we say       INFLIGHT BATCH SIZE_BYTES WARMUP_MS DURATION_MS
    it says      {"event": "measuring"}                                                  the warm-up is over
                 {"event": "measured", "records": …, "errors": …, "duration_s": …, "p50_ms": …, "p99_ms": …}

A generator ends with its stdin. One that is late by more than ``GRACE_S`` is given up. Processor time is read at both
events: what counts is what was used between them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from bench.processes import Child, core_seconds
from bench.work import MeasurementFailed, Outcome, Work

GRACE_S = 30.0
"""Beyond the times of the work: what is in flight must come in, and an acknowledgement may never come."""
WINDOW_S = 3.0
STEADY = 0.05
"""The rates of two windows differ by less than this share."""
MOST_WINDOWS = 8


class Driver:
    """A load generator. It may live inside a server (``client`` is one of ``servers`` then)."""

    def __init__(self, client: Child, servers: Sequence[Child]) -> None:
        self._client = client
        self._servers = list(servers)
        self._pids = [server.pid for server in servers]

    def warm_up(self, work: Work) -> bool:
        """Does the work until two windows in a row are alike; False if none were in ``MOST_WINDOWS``."""
        before = 0.0
        for _ in range(MOST_WINDOWS):
            window = self.measure(work, warmup_s=0, duration_s=WINDOW_S)
            if window.errors:
                raise MeasurementFailed(f"{window.errors} calls failed while {work.name} warmed up")
            rate = window.records_per_s
            if abs(rate - before) < STEADY * max(rate, before):
                return True
            before = rate
        return False

    def measure(self, work: Work, *, warmup_s: float, duration_s: float) -> Outcome:
        """Raises MeasurementFailed, also when a server has ended: two nodes are another system than three."""
        deadline = time.monotonic() + warmup_s + duration_s + GRACE_S
        times_ms = f"{warmup_s * 1000:.0f} {duration_s * 1000:.0f}"
        self._client.tell(f"{work.inflight} {work.batch} {work.size_bytes} {times_ms}")
        self._expect("measuring", deadline)
        servers, client = self._core_seconds()
        said = self._expect("measured", deadline)
        servers_now, client_now = self._core_seconds()
        if not said["records"]:
            raise MeasurementFailed(f"no append succeeded, {said['errors']} failed (see {self._client.log})")
        return Outcome(
            records=said["records"],
            errors=said["errors"],
            duration_s=said["duration_s"],
            p50_ms=said["p50_ms"],
            p99_ms=said["p99_ms"],
            server_core_s=servers_now - servers,
            client_core_s=client_now - client,
        )

    def _core_seconds(self) -> tuple[float, float]:
        self._raise_if_a_server_ended()
        inside = self._client.pid in self._pids
        return core_seconds(self._pids), 0.0 if inside else core_seconds([self._client.pid])

    def _expect(self, event: str, deadline: float) -> dict[str, Any]:
        try:
            said: dict[str, Any] = json.loads(self._client.hear(deadline - time.monotonic()))
        except MeasurementFailed:
            self._raise_if_a_server_ended()  # which says more
            raise
        if said["event"] != event:
            raise MeasurementFailed(f"the load generator said {said}, not {event!r} (see {self._client.log})")
        return said

    def _raise_if_a_server_ended(self) -> None:
        for server in self._servers:
            server.raise_if_ended()
