"""etcd: three members from the distribution's package, and etcd's own Go client."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from bench.peers.api import Peer, require, version_of
from bench.peers.go import build_go
from bench.processes import Child, free_ports, wait_for
from bench.work import MeasurementFailed, Outcome, Work
from dledger.cli.ports import LOOPBACK

MEMBERS = 3
CONNECTIONS = 4


class Etcd(Peer):
    """A put of a new key for each record."""

    name = "etcd"
    title = "etcd"
    client = "Go, etcd's own (gRPC)"
    promise = "fdatasync on a majority"
    syncs = True
    bulk = Work("bulk", 64, batch=100)
    bulk_note = "transactions of 100 puts, 64 at a time"

    def install(self) -> str:
        self._etcd = require("etcd", "etcd-server")
        self._load = build_go("etcd")
        return version_of([self._etcd, "--version"]).removeprefix("etcd Version: ")

    def start(self, data: Path) -> None:
        ports = free_ports(2 * MEMBERS)
        clients = [f"http://{LOOPBACK}:{port}" for port in ports[:MEMBERS]]
        peers = [f"http://{LOOPBACK}:{port}" for port in ports[MEMBERS:]]
        members = ",".join(f"e{number}={peer}" for number, peer in enumerate(peers))
        for number in range(MEMBERS):
            flags = ["--name", f"e{number}", "--data-dir", data / f"e{number}", "--initial-cluster", members]
            flags += ["--listen-client-urls", clients[number], "--advertise-client-urls", clients[number]]
            flags += ["--listen-peer-urls", peers[number], "--initial-advertise-peer-urls", peers[number]]
            flags += ["--quota-backend-bytes", 8 << 30, "--log-level", "error"]
            self.servers.append(Child([self._etcd, *map(str, flags)], data / f"e{number}.log"))
        leader = wait_for(lambda: _leader(clients), "etcd has a leader", children=self.servers)
        self.leader_port = int(leader.rpartition(":")[2])
        self._driven_by(Child([self._load, leader, str(CONNECTIONS)], data / "client.log", talks=True))

    def load(self, work: Work, duration_s: float) -> Outcome:
        """Raises MeasurementFailed, also where another member led behind it: the client would have gone a hop more."""
        outcome = super().load(work, duration_s)
        self.require_leader()
        return outcome

    def require_leader(self) -> None:
        """Raises MeasurementFailed where the member that is loaded leads no more."""
        address = f"http://{LOOPBACK}:{self.leader_port}"
        if _leader([address]) != address:
            raise MeasurementFailed("etcd's leader was lost, or does not answer")

    def puts(self) -> int:
        """How many there were so far: each is a revision. Raises MeasurementFailed."""
        status = _status(f"http://{LOOPBACK}:{self.leader_port}")
        if status is None:
            raise MeasurementFailed("etcd's leader does not answer")
        return int(status["header"]["revision"])


def _leader(clients: list[str]) -> str | None:
    """The address of the member that leads: a client that knows saves a hop."""
    for address in clients:
        status = _status(address)
        if status is None:
            return None
        if status.get("leader") and status["leader"] == status["header"]["member_id"]:
            return address
    return None


def _status(address: str) -> dict[str, Any] | None:
    request = urllib.request.Request(f"{address}/v3/maintenance/status", data=b"{}")
    try:
        with urllib.request.urlopen(request, timeout=2.0) as answer:
            status: dict[str, Any] = json.load(answer)
    except OSError:
        return None
    return status
