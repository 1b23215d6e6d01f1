"""PySyncObj: three nodes of a replicated Python object, loaded inside the leader's process: it has no clients."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

from bench.driver import Driver
from bench.peers.api import Peer
from bench.processes import Child, free_ports, wait_for
from bench.work import BULK, PeerMissing, Work
from dledger.cli.ports import LOOPBACK

NODES = 3
AT_ONCE, BATCHING, MANY = "at-once", "batching", "bulk"
"""Whether a node sends what it is given at once, or what a short or a long period brings together. It is told when it
starts; each work has the mode that does it fastest (drivers/pysyncobj_node.py)."""


class PySyncObj(Peer):
    """A call of a replicated method for each record."""

    name = "pysyncobj"
    title = "PySyncObj"
    client = "in the leader's process"
    promise = "in the memory of a majority"
    syncs = False
    bulk = Work(BULK, 20_000)
    bulk_note = "20,000 calls at a time; nodes are started anew for each mode, and memory counts from there"
    _mode = ""

    def install(self) -> str:
        try:
            return metadata.version("pysyncobj")
        except metadata.PackageNotFoundError:
            raise PeerMissing("pysyncobj is not installed (pip install 'dledger[bench]')") from None

    def start(self, data: Path) -> None:
        self._data = data
        self._start_in(BATCHING)

    def _driver_for(self, work: Work) -> Driver:
        """The nodes are started anew where the work wants the other mode."""
        mode = MANY if work.name == BULK else AT_ONCE if work.inflight == 1 else BATCHING
        if mode != self._mode:
            self.stop()
            self._start_in(mode)
        return super()._driver_for(work)

    def _start_in(self, mode: str) -> None:
        self._mode = mode
        addresses = [f"{LOOPBACK}:{port}" for port in free_ports(NODES)]
        for number, address in enumerate(addresses):
            partners = ",".join(other for other in addresses if other != address)
            command = [sys.executable, "-m", "bench.drivers.pysyncobj_node", mode, address, partners]
            self.servers.append(Child(command, self._data / f"p{number}.log", talks=True))
        self._driven_by(wait_for(self._leader, "PySyncObj has a leader", children=self.servers))

    def _leader(self) -> Child | None:
        for server in self.servers:
            server.tell("role")
            if json.loads(server.hear())["leads"]:
                return server
        return None
