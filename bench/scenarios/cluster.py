"""A cluster of ours for one scenario, loaded with ``dledger bench``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.compare import data_folder
from bench.peers.dledger_python import DLedgerPython
from bench.processes import Child, core_seconds, resident_bytes, wait_until
from bench.work import MeasurementFailed
from dledger.client import ClusterStatus, connect_blocking
from dledger.errors import Unavailable


class Cluster:
    """Nodes n0, n1 …, each a process of its own."""

    def __init__(self, system: DLedgerPython, data: Path) -> None:
        self._system = system
        self._data = data
        self.log = connect_blocking(system.endpoints)
        self.log.__enter__()

    @property
    def endpoints(self) -> str:
        return self._system.endpoints

    @property
    def nodes(self) -> list[Child]:
        return self._system.servers

    @property
    def data_bytes(self) -> int:
        """Of the first node's files, as far as they are written."""
        files = (self._data / "n0").rglob("*")
        return sum(file.stat().st_blocks * 512 for file in files if file.is_file())

    def bench(self, kind: str, **flags: object) -> dict[str, Any]:
        """One ``dledger bench``, and the core-seconds of nodes that it took. Raises MeasurementFailed."""
        used = self.core_s()
        ended = subprocess.run(self._command(kind, flags), capture_output=True, text=True, check=False)
        if ended.returncode:
            raise MeasurementFailed(f"dledger bench {kind}: {ended.stderr.strip().splitlines()[-1]}")
        result: dict[str, Any] = json.loads(ended.stdout)
        return {**result, "server_core_s": self.core_s() - used}

    def begin(self, kind: str, **flags: object) -> Child:
        """One that goes on until it is ended."""
        return Child(self._command(kind, flags), self._data / "load.log")

    def status(self) -> ClusterStatus | None:
        """None where nobody can say."""
        try:
            return self.log.status()
        except Unavailable:
            return None

    def wait_ready(self) -> ClusterStatus:
        """Until somebody leads and everybody answers and has caught up."""
        seen: list[ClusterStatus] = []

        def ready() -> bool:
            status = self.status()
            if status is None or status.leader is None:
                return False
            seen[:] = [status]
            return all(node.reachable and not node.lag_frames for node in status.nodes)

        wait_until(ready, "the cluster is whole", children=self.nodes, timeout_s=120.0)
        return seen[0]

    def end(self, number: int, *, kill: bool = False) -> None:
        """The node's process ends: cleanly, or by kill -9."""
        self.nodes[number].kill() if kill else self.nodes[number].end()

    def start(self, number: int) -> float:
        """Starts a node that was ended; returns the seconds until it serves clients."""
        began = time.perf_counter()
        self.nodes[number] = self._system.start_server(number)
        self._system.wait_serving(number)
        return time.perf_counter() - began

    def core_s(self) -> float:
        """Of all nodes that run."""
        return core_seconds(node.pid for node in self.nodes if node.process.poll() is None)

    def resident_mb(self) -> float:
        """Of the largest node."""
        return max(resident_bytes(node.pid) for node in self.nodes if node.process.poll() is None) / 1e6

    def close(self) -> None:
        self.log.close()
        self._system.stop()

    def _command(self, kind: str, flags: dict[str, object]) -> list[str]:
        command = [sys.executable, "-m", "dledger", "bench", kind, "-o", "json", "--endpoints", self.endpoints]
        for name, value in flags.items():
            command += [f"--{name}", str(value)]
        return command


@contextmanager
def cluster(nodes: int) -> Iterator[Cluster]:
    """Ready; gone, with its data, behind the block."""
    system = DLedgerPython(nodes)
    with data_folder() as data:
        try:
            system.start_servers(data)
        except BaseException:
            system.stop()
            raise
        running = Cluster(system, data)
        try:
            running.wait_ready()
            yield running
        finally:
            running.close()
