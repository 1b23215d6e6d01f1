"""NATS JetStream: three servers from the distribution's package, a stream of three replicas on files, nats.go."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from bench.peers.api import Peer, require, version_of
from bench.peers.go import build_go
from bench.processes import Child, free_ports, wait_until
from bench.work import Work
from dledger.cli.ports import LOOPBACK

SERVERS = 3
STREAM = "bench"
CONFIG = """
server_name: s{number}
listen: {host}:{client}
http: {host}:{monitor}
jetstream {{ store_dir: "{store}", max_file_store: 20GB }}
cluster {{ name: bench, listen: {host}:{peer}, routes: [{routes}] }}
"""


class Nats(Peer):
    """A publish for each record to the stream's leader: a client that knows saves a hop."""

    name = "nats"
    title = "NATS JetStream, R3 file"
    client = "Go, nats.go"
    promise = "written by a majority, synced every 2 min"
    syncs = False
    bulk = Work("bulk", 4000)
    bulk_note = "4,000 publishes at a time"

    def install(self) -> str:
        self._server = require("nats-server", "nats-server")
        self._load = build_go("nats")
        return version_of([self._server, "--version"]).removeprefix("nats-server: ")

    def start(self, data: Path) -> None:
        ports = free_ports(3 * SERVERS)
        clients, peers, self._monitors = ports[:SERVERS], ports[SERVERS : 2 * SERVERS], ports[2 * SERVERS :]
        routes = ", ".join(f"nats://{LOOPBACK}:{port}" for port in peers)
        data.mkdir(parents=True, exist_ok=True)
        for number in range(SERVERS):
            config = data / f"s{number}.conf"
            addresses = {"client": clients[number], "peer": peers[number], "monitor": self._monitors[number]}
            where = {"host": LOOPBACK, "store": data / f"s{number}", "routes": routes}
            config.write_text(CONFIG.format(number=number, **addresses, **where))
            self.servers.append(Child([self._server, "-c", config], data / f"s{number}.log"))
        wait_until(self._has_leader, "JetStream has a leader", children=self.servers)
        servers = [f"s{number}=nats://{LOOPBACK}:{port}" for number, port in enumerate(clients)]
        self._driven_by(Child([self._load, STREAM, *servers], data / "client.log", talks=True))

    def _has_leader(self) -> bool:
        """Of JetStream's own meta group, with every server in it."""
        for monitor in self._monitors:
            try:
                with urllib.request.urlopen(f"http://{LOOPBACK}:{monitor}/jsz", timeout=2.0) as answer:
                    group = json.load(answer).get("meta_cluster", {})
            except OSError:
                return False
            if not group.get("leader") or group.get("cluster_size") != SERVERS:
                return False
        return True
