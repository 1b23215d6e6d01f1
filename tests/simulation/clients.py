"""Clients that remember what they were told: producers that retry, and readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from dledger.batch import build_body, crc32c
from dledger.errors import Code, DLedgerError, OutcomeUnknown
from dledger.server.appender import Source
from dledger.server.quorum_ack_checker import AppendResult
from dledger.types import Consistency
from tests.simulation.cluster import SimHost, SimulatedCluster
from tests.simulation.watch import Violation

FENCED = {Code.UNKNOWN_PRODUCER, Code.PRODUCER_FENCED, Code.SEQUENCE_CONFLICT, Code.REPEATED_REQUEST}


@dataclass
class Journal:
    """What all clients know together."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    attempted: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    """Surely not appended."""
    reads: int = 0

    def acknowledge(self, base_index: int, records: list[bytes]) -> None:
        for index, record in enumerate(records, base_index):
            known = self.acknowledged.setdefault(index, record)
            if known != record:
                raise Violation("one value an index", f"index {index} was acknowledged to {known!r} and {record!r}")

    @property
    def highest(self) -> int:
        return max(self.acknowledged, default=-1)

    def saw(self, index: int, value: bytes, *, who: str) -> None:
        """A committed read."""
        known = self.acknowledged.get(index)
        if known is not None and known != value:
            raise Violation("reads are what was acknowledged", f"{who} read {value!r} at {index}, not {known!r}")
        if value in self.refused:
            raise Violation("what failed is not there", f"{who} read {value!r}, which was refused")
        if value not in self.attempted:
            raise Violation("what is read was appended", f"{who} read {value!r} at {index}, which nobody appended")

    def check(self, committed: list[bytes], first_index: int, *, who: str) -> None:
        """Nothing acknowledged is lost or moved, nothing that failed is there, nothing is there twice."""
        for index, record in self.acknowledged.items():
            if index < first_index:
                continue
            at = index - first_index
            if at >= len(committed) or committed[at] != record:
                there = committed[at] if at < len(committed) else "nothing"
                raise Violation("no acknowledged loss", f"{who} has {there!r} at {index}, {record!r} was acknowledged")
        if len(set(committed)) != len(committed):
            raise Violation("no duplicates", f"a record is twice in the log of {who}")
        for index, record in enumerate(committed, first_index):
            self.saw(index, record, who=who)


class ProducerClient:
    """One idempotent producer: keeps a batch until its outcome is known, wherever the leader is."""

    def __init__(self, name: str, cluster: SimulatedCluster, journal: Journal, random: Random) -> None:
        self._name = name
        self._cluster = cluster
        self._journal = journal
        self._random = random
        self._producer_id = 0
        self._sequence = 0
        self._number = 0
        self.acknowledged = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            records = [self._record() for _ in range(self._random.choice((1, 1, 2, 5)))]
            self._journal.attempted.update(records)
            await self._append(records, is_over)
            await asyncio.sleep(self._random.expovariate(1 / 0.04))

    def _record(self) -> bytes:
        self._number += 1
        return f"{self._name}-{self._number}-".encode() + b"." * self._random.choice((0, 10, 300))

    async def _append(self, records: list[bytes], is_over: Callable[[], bool]) -> None:
        in_doubt = False
        while not is_over():
            host = self._some_leader()
            if host is None:
                await asyncio.sleep(0.05)
                continue
            try:
                base_index = await self._attempt(host, records)
            except TimeoutError:
                in_doubt = True
                continue
            except DLedgerError as refusal:
                in_doubt |= isinstance(refusal, OutcomeUnknown)
                if refusal.code in FENCED:
                    self._producer_id = 0
                    if in_doubt:
                        return  # may be there, may come later
                await asyncio.sleep(self._random.uniform(0.01, 0.1))
                continue
            self._journal.acknowledge(base_index, records)
            self._cluster.trace.note("ack", self._name, base_index, len(records))
            self._sequence += len(records)
            self.acknowledged += len(records)
            return
        if not in_doubt:
            self._journal.refused.update(records)

    async def _attempt(self, host: SimHost, records: list[bytes]) -> int:
        async with asyncio.timeout(self._random.choice((0.2, 1.0, 6.0))):
            appender = host.replica.appender
            if not self._producer_id:
                result = await _outcome(appender.new_producer())
                self._producer_id, self._sequence = result.base_index, 0
            body = build_body(records)
            source = Source(self._producer_id, 0, self._sequence)
            result = await _outcome(appender.append_body(body, crc32c(body), len(records), source))
        return result.base_index

    def _some_leader(self) -> SimHost | None:
        leading = self._cluster.leaders()
        return self._random.choice(leading) if leading else None


async def _outcome(future: asyncio.Future[AppendResult]) -> AppendResult:
    """What the server says, if this client still listens then; the append goes on when it does not."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(future)


class ReaderClient:
    """Linearizable reads of whoever leads, committed ones of anybody."""

    def __init__(self, cluster: SimulatedCluster, journal: Journal, random: Random) -> None:
        self._cluster = cluster
        self._journal = journal
        self._random = random

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            for host in self._cluster.leaders():
                if host.is_up:  # still: the one before took its time
                    await self._linearizable(host)
            if up := self._cluster.up():
                await self._committed(self._random.choice(up))
            await asyncio.sleep(self._random.expovariate(1 / 0.1))

    async def _linearizable(self, host: SimHost) -> None:
        acknowledged = self._journal.highest
        replica = host.replica
        try:
            async with asyncio.timeout(2):
                point = await replica.reader.read_point(Consistency.LINEARIZABLE)
                if point.commit_index < acknowledged:
                    raise Violation(
                        "linearizable reads",
                        f"{host.id} reads up to {point.commit_index}, {acknowledged} was acknowledged before",
                    )
                if acknowledged >= 0:
                    entry = await replica.reader.get(acknowledged, point)
                    self._journal.saw(acknowledged, entry.value, who=host.id)
        except (DLedgerError, TimeoutError):
            return
        self._journal.reads += 1

    async def _committed(self, host: SimHost) -> None:
        reader = host.replica.reader
        try:
            async with asyncio.timeout(2):
                point = await reader.read_point(Consistency.COMMITTED)
                first = host.replica.log.state.first_index
                if point.commit_index < first:
                    return
                index = self._random.randint(first, point.commit_index)
                entry = await reader.get(index, point)
        except (DLedgerError, TimeoutError):
            return
        self._journal.saw(index, entry.value, who=host.id)
        self._journal.reads += 1
