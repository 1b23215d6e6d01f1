"""Ours: three nodes as ``dledger serve`` runs them, and the SDK."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.peers.api import Peer
from bench.processes import Child, serves_grpc, wait_until
from bench.work import Work
from dledger.cli.ports import LOOPBACK, free_base
from dledger.common.types import Durability
from dledger.version import __version__

PORT_STEP = 10


class DLedgerPython(Peer):
    """With fsync on, the default."""

    name = "dledger"
    title = "dledger"
    client = "Python SDK"
    promise = "fdatasync on a majority"
    syncs = True
    bulk = Work("bulk", 8, batch=8000)
    bulk_note = "append_many of 8,000, 8 at a time"
    durability = Durability.FSYNC

    def __init__(self, nodes: int = 3, serve_flags: Sequence[str] = ()) -> None:
        super().__init__()
        self.nodes = nodes
        self._serve_flags = serve_flags
        self.endpoints = ""
        self._base = 0

    def install(self) -> str:
        return __version__

    def start(self, data: Path) -> None:
        self.start_servers(data)
        client = [sys.executable, "-m", "bench.drivers.dledger_load", self.endpoints]
        self._driven_by(Child(client, data / "client.log", talks=True))

    def start_servers(self, data: Path) -> None:
        """The nodes alone, until each answers clients."""
        self._base = free_base(self.nodes)
        self._data = data
        self.endpoints = ",".join(f"{LOOPBACK}:{self._client_port(number)}" for number in range(self.nodes))
        self.servers = [self.start_server(number) for number in range(self.nodes)]
        for number in range(self.nodes):
            self.wait_serving(number)

    def wait_serving(self, number: int) -> None:
        """Until the node answers clients."""
        port = self._client_port(number)
        wait_until(lambda: serves_grpc(port), f"n{number} serves", children=[self.servers[number]])

    def _client_port(self, number: int) -> int:
        return self._base + PORT_STEP * number + 1

    def start_server(self, number: int) -> Child:
        """One node; also one that was ended before."""
        peers = ",".join(f"n{each}={LOOPBACK}:{self._base + PORT_STEP * each}" for each in range(self.nodes))
        flags = ["--id", f"n{number}", "--peers", peers, "--data", str(self._data / f"n{number}")]
        flags += ["--durability", self.durability.value, *self._serve_flags]
        return Child([sys.executable, "-m", "dledger", "serve", *flags], self._data / f"n{number}.log")


class DLedgerPythonUnsynced(DLedgerPython):
    """For those peers that do not sync either."""

    name = "dledger-nosync"
    title = "dledger, durability=none"
    promise = "written by a majority, not synced"
    syncs = False
    durability = Durability.NONE
