"""PySyncObj: three nodes of a replicated Python object, loaded inside the leader's process: it has no clients."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

from bench.peers.api import Peer
from bench.processes import LOOPBACK, Child, free_ports, wait_for
from bench.work import BULK, PeerMissing, Work

NODES = 3


class PySyncObj(Peer):
    """A call of a replicated method for each record."""

    name = "pysyncobj"
    title = "PySyncObj"
    client = "in the leader's process"
    promise = "in the memory of a majority"
    syncs = False
    bulk = Work(BULK, 20_000)
    bulk_note = "20,000 calls at a time"

    def install(self) -> str:
        try:
            return metadata.version("pysyncobj")
        except metadata.PackageNotFoundError:
            raise PeerMissing("pysyncobj is not installed (pip install 'dledger[bench]')") from None

    def start(self, data: Path) -> None:
        addresses = [f"{LOOPBACK}:{port}" for port in free_ports(NODES)]
        for number, address in enumerate(addresses):
            partners = ",".join(other for other in addresses if other != address)
            command = [sys.executable, "-m", "bench.drivers.pysyncobj_node", address, partners]
            self.servers.append(Child(command, data / f"p{number}.log", talks=True))
        self._driven_by(wait_for(self._leader, "PySyncObj has a leader", children=self.servers))

    def _leader(self) -> Child | None:
        for server in self.servers:
            server.tell("role")
            if json.loads(server.hear())["leads"]:
                return server
        return None
