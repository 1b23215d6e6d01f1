"""A cluster of ours for one scenario, loaded with ``dledger bench`` and with our own client (client.py)."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from bench.machine import GIGABYTE, data_folder, keep_logs
from bench.peers.dledger_python import DLedgerPython
from bench.processes import Child, core_seconds, largest_mb, wait_until
from bench.report import NONE
from bench.work import MeasurementFailed
from dledger.client import ClusterStatus, connect_blocking
from dledger.common.errors import DeadlineExceeded, Unavailable

LONGEST_S = 3600.0
"""No single work takes that long."""
FILL_RECORD_BYTES = 4096
FILL_BATCH = 32
"""What a long log is filled with. Batches of 128 KiB, up to three a frame: a get that finds its frame in no cache
reads, and checks, all of it."""


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

    def data_folder(self, number: int = 0) -> Path:
        """The node's."""
        return self._data / f"n{number}"

    @property
    def data_bytes(self) -> int:
        """Of the files of the node that has the least, with the room that is made ready for what comes: up to two
        segments."""
        sizes = (sum(map(_taken_bytes, self._files(number))) for number in range(len(self.nodes)))
        return min(sizes)

    def cached_bytes(self, number: int) -> int | None:
        """How much of the node's files lies in the page cache; None where there is no ``fincore``."""
        fincore = shutil.which("fincore")
        if fincore is None:
            return None
        command = [fincore, "--bytes", "--noheadings", "--output", "RES", *map(str, self._files(number))]
        # A file that was renamed or removed meanwhile is complained of, and the others are told.
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return sum(map(int, told.split()))

    def bench(self, kind: str, **flags: object) -> dict[str, Any]:
        """One ``dledger bench``, and the core-seconds of nodes that it took. Raises MeasurementFailed."""
        return self._measured(f"dledger bench {kind}", self._command(kind, flags))

    def client(self, work: str, *arguments: object) -> dict[str, Any]:
        """As ``bench``, one work of client.py."""
        command = [sys.executable, "-m", "bench.scenarios.client", work, self.endpoints, *map(str, arguments)]
        return self._measured(f"client.py {work}", command)

    def fill(self, size_bytes: float) -> range:
        """Appends records of ``FILL_RECORD_BYTES``, one at least, until they are ``size_bytes``. Nobody else may append
        meanwhile. Returns their indexes. Raises MeasurementFailed."""
        records = max(1, math.ceil(size_bytes / FILL_RECORD_BYTES))
        first = int(self.client("fill", records, FILL_RECORD_BYTES, FILL_BATCH)["first_index"])
        return range(first, first + records)

    def _measured(self, name: str, command: list[str]) -> dict[str, Any]:
        used = self.core_s()
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            raise MeasurementFailed(f"{name}: not done within {LONGEST_S / 60:.0f} min") from None
        if ended.returncode:
            said = ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}, without a word"]
            raise MeasurementFailed(f"{name}: {said[-1]}")
        result: dict[str, Any] = json.loads(ended.stdout)
        if result.get("errors"):
            raise MeasurementFailed(f"{name}: {result['errors']} calls failed")
        return {**result, "server_core_s": self.core_s() - used}

    def _files(self, number: int) -> list[Path]:
        return [file for file in self.data_folder(number).rglob("*") if file.is_file()]

    def begin(self, kind: str, **flags: object) -> Child:
        """One that goes on until it is ended."""
        return Child(self._command(kind, flags), self._data / "load.log")

    def status(self) -> ClusterStatus | None:
        """None where nobody can say."""
        try:
            return self.log.status()
        except (DeadlineExceeded, Unavailable):
            return None

    def cached_gb(self, number: int) -> str:
        """As ``cached_bytes``, for a table."""
        size_bytes = self.cached_bytes(number)
        return NONE if size_bytes is None else f"{size_bytes / GIGABYTE:.3f}"

    def leader(self) -> int:
        """Its number, as soon as all are ready."""
        return int(str(self.wait_ready().leader).removeprefix("n"))

    def term(self) -> int:
        """Of the leader, as soon as all are ready: where it has risen there was an election."""
        return self.wait_ready().term

    def elections_since(self, term: int) -> int:
        """How many there were. Of any the nodes' logs are kept: somebody will want to know why."""
        elections = self.term() - term
        if elections:
            kept = keep_logs(self._data)
            click.echo(f"elections though no leader was killed: {elections}; the nodes' logs are in {kept}", err=True)
        return elections

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

    def peak_mb(self) -> float:
        """Of the largest node."""
        return largest_mb(self.nodes)

    def close(self) -> None:
        self.log.close()
        self._system.stop()

    def _command(self, kind: str, flags: dict[str, object]) -> list[str]:
        command = [sys.executable, "-m", "dledger", "bench", kind, "-o", "json", "--endpoints", self.endpoints]
        for name, value in flags.items():
            command += [f"--{name}", str(value)]
        return command


def _taken_bytes(file: Path) -> int:
    try:
        return file.stat().st_blocks * 512
    except FileNotFoundError:
        return 0  # a segment was given another name, or trimmed, meanwhile


@contextmanager
def cluster(nodes: int, *, needed_gb: float = 0, serve_flags: Sequence[str] = ()) -> Iterator[Cluster]:
    """Ready; gone, with its data, behind the block. ``needed_gb``: what its nodes write at most, all in all."""
    system = DLedgerPython(nodes, serve_flags)
    with data_folder(needed_gb) as data:
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
