"""DLedger, the Java one: three servers and its own client, from Maven Central."""

from __future__ import annotations

import json
from pathlib import Path

from bench.driver import Driver
from bench.peers.api import Peer
from bench.peers.java import build_java, version_in
from bench.processes import Child, free_ports, wait_for
from bench.work import BULK, MeasurementFailed, Work
from dledger.cli.ports import LOOPBACK

SERVERS = 3
MEMORY = ("-Xms512m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g")


class DLedgerJava(Peer):
    """Its client appends one record a call and blocks; batches exist inside the leader's process alone."""

    name = "dledger-java"
    title = "DLedger (Java)"
    client = "Java, its own, a thread a call"
    promise = "written by a majority, synced every 10 ms"
    syncs = False
    bulk = Work(BULK, 16, batch=100)
    bulk_note = "batches of 100, 16 at a time, in the leader's process"
    warmup_s = 1.5
    just_in_time = True

    def install(self) -> str:
        self._classes = build_java("dledger")
        return version_in("dledger", "dledger")

    def start(self, data: Path) -> None:
        peers = ";".join(f"n{number}-{LOOPBACK}:{port}" for number, port in enumerate(free_ports(SERVERS)))
        for number in range(SERVERS):
            arguments = [f"n{number}", peers, str(data / f"n{number}")]
            self.servers.append(self._java("DLedgerNode", arguments, data / f"n{number}.log", memory=MEMORY))
        wait_for(self._leader, "DLedger has a leader", children=self.servers)
        self._driven_by(self._java("DLedgerLoad", [peers], data / "client.log"))

    def _driver_for(self, work: Work) -> Driver:
        if work.name != BULK:
            return super()._driver_for(work)
        leader = self._leader()
        if leader is None:
            raise MeasurementFailed("DLedger has no leader, in whose process alone there are batches")
        return Driver(leader, self.servers)

    def _leader(self) -> Child | None:
        for server in self.servers:
            server.tell("role")
            if json.loads(server.hear())["leads"]:
                return server
        return None

    def _java(self, name: str, arguments: list[str], log: Path, memory: tuple[str, ...] = ()) -> Child:
        where = [f"-Duser.home={log.parent}", "-cp", self._classes]
        return Child(["java", *memory, *where, f"dev.dledger.bench.{name}", *arguments], log, talks=True)
