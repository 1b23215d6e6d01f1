"""How every load generator is spoken to, whatever language it is written in.

    we say       INFLIGHT BATCH SIZE_BYTES WARMUP_MS DURATION_MS
    it says      {"event": "measuring"}                                                  the warm-up is over
                 {"event": "measured", "records": …, "errors": …, "duration_s": …, "p50_ms": …, "p99_ms": …}

A generator ends with its stdin. Processor time is read at both events: what counts is what was used between them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bench.processes import Child, core_seconds
from bench.work import MeasurementFailed, Outcome, Work


class Driver:
    """A load generator. It may live inside a server (``client`` is one of ``servers`` then)."""

    def __init__(self, client: Child, servers: Sequence[Child]) -> None:
        self._client = client
        self._servers = [server.pid for server in servers]

    def measure(self, work: Work, *, warmup_s: float, duration_s: float) -> Outcome:
        """Raises MeasurementFailed."""
        times_ms = f"{warmup_s * 1000:.0f} {duration_s * 1000:.0f}"
        self._client.tell(f"{work.inflight} {work.batch} {work.size_bytes} {times_ms}")
        self._expect("measuring")
        servers, client = self._core_seconds()
        said = self._expect("measured")
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
        inside = self._client.pid in self._servers
        return core_seconds(self._servers), 0.0 if inside else core_seconds([self._client.pid])

    def _expect(self, event: str) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self._client.hear())
        if said["event"] != event:
            raise MeasurementFailed(f"the load generator said {said}, not {event!r} (see {self._client.log})")
        return said
