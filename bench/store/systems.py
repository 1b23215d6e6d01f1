"""The two systems that are measured side by side, behind one interface: three nodes each, all synced."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.peers.api import version_of
from bench.peers.dledger_python import DLedgerPython
from bench.peers.etcd import Etcd
from bench.peers.go import build_go
from bench.processes import Child, wait_for
from bench.store.node_api import NodeApi
from bench.work import MeasurementFailed, Outcome, PeerMissing, Work
from tests.etcd.programs import Lacking, program


class EtcdStore(Etcd):
    """etcd as its own Go module has it: Debian's is older."""

    client = "Go, etcd's own (clientv3), 4 connections to the leader"

    def install(self) -> str:
        try:
            self._etcd = str(program("etcd"))
        except Lacking as why:
            raise PeerMissing(str(why)) from None
        self._load = build_go("etcd")
        return version_of([self._etcd, "--version"]).removeprefix("etcd Version: ")


class OurStore(DLedgerPython):
    """Our nodes, loaded at the one that leads ``meta``."""

    client = "Python SDK"

    def start(self, data: Path) -> None:
        self.start_servers(data)
        ports = [int(each.rpartition(":")[2]) for each in self.endpoints.split(",")]
        self._nodes = [NodeApi(port) for port in ports]
        self._leader = wait_for(self._find_leader, "the store has a leader", children=self.servers)
        command = [sys.executable, "-m", "bench.drivers.store_load", self.endpoints]
        self._driven_by(Child(command, data / "client.log", talks=True))

    def stop(self) -> None:
        super().stop()
        for node in getattr(self, "_nodes", ()):
            node.close()

    def _find_leader(self) -> NodeApi | None:
        return next((node for node in self._nodes if node.leads()), None)

    @property
    def leader_port(self) -> int:
        return self._leader.port

    def load(self, work: Work, duration_s: float) -> Outcome:
        """As etcd's: raises MeasurementFailed where another node leads behind it."""
        outcome = super().load(work, duration_s)
        self.require_leader()
        return outcome

    def require_leader(self) -> None:
        """Raises MeasurementFailed where the node that is loaded leads no more."""
        if not self._leader.leads():
            raise MeasurementFailed("the store's leader was lost, or does not answer")

    def puts(self) -> int:
        """How many there were so far: each is a revision. Raises MeasurementFailed."""
        status = self._leader.status()
        if status is None:
            raise MeasurementFailed("the store's leader does not answer")
        return int(status.header.revision)


System = EtcdStore | OurStore
SYSTEMS: tuple[type[System], ...] = (OurStore, EtcdStore)
