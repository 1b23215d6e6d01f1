"""``python -m tests.soak --minutes 5 --kill-every 10``: nodes die all the time, and nothing that was acked is lost.

Five nodes take appends while one of them, chosen at random, is killed with -9 every few seconds and started again. The
client keeps a journal of its own: what every ack said, in the order of the acks. At the end every node's log is read
and held against it: nothing lost, nothing twice, nothing out of order. The last line is one JSON object; exits with 1
when something was wrong.

``--clients 200`` asks something else: clients that come and go, and nodes that do not grow (soak_of_clients.py).
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from array import array
from collections import Counter, deque
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from dledger.cli.cluster import LocalCluster
from dledger.cli.output import Progress
from dledger.cli.runtime import exit_code_of, run
from dledger.client import Log, connect
from dledger.common.errors import DLedgerError, OutcomeUnknown, PendingFull
from dledger.common.types import Ack
from jepsen.nemesis.api import happens
from tests.soak_of_clients import limits_file, soak_with_clients
from tests.support.reading import SETTLE_TIMEOUT_S, whole_log

SEQUENCE_BYTES = 8
VALUE_BYTES = 100
WINDOW = 1_000
CALL_TIMEOUT_MS = 20_000
PACE_S = 0.01


@dataclass(slots=True)
class Journal:
    """What the client was told. A record is known by its number: the order in which it was appended."""

    sent: int = 0
    numbers: array[int] = field(default_factory=lambda: array("q"))
    """The numbers acknowledged, in the order of the acks."""
    indexes: array[int] = field(default_factory=lambda: array("q"))
    """The index that each of these acks gave."""
    unknown: set[int] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    longest_gap_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Findings:
    """What one node's log gets wrong."""

    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    foreign: int = 0
    """Records that nobody appended, with other bytes than were appended, or that were refused."""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.foreign)


def value_of(number: int) -> bytes:
    """The record's bytes: its number, and a tail that only this number has."""
    head = number.to_bytes(SEQUENCE_BYTES, "big")
    return (head + blake2b(head).digest()).ljust(VALUE_BYTES, b".")


def judge(journal: Journal, records: list[bytes]) -> Findings:
    """Holds a node's log against the journal."""
    numbers = [int.from_bytes(record[:SEQUENCE_BYTES], "big") for record in records]
    pairs = zip(numbers, records, strict=True)
    intact = [number < journal.sent and record == value_of(number) for number, record in pairs]
    lost = sum(
        not (index < len(records) and intact[index] and numbers[index] == number)
        for number, index in zip(journal.numbers, journal.indexes, strict=True)
    )
    allowed = set(journal.numbers) | journal.unknown
    foreign = sum(not fine or number not in allowed for number, fine in zip(numbers, intact, strict=True))
    duplicated = len(numbers) - len(set(numbers))
    out_of_order = sum(later < earlier for earlier, later in pairwise(numbers))
    out_of_order += sum(later <= earlier for earlier, later in pairwise(journal.indexes))
    return Findings(lost, duplicated, out_of_order, foreign)


class Load:
    """Appends at a steady rate, a bounded number in flight, and writes the journal."""

    def __init__(self, log: Log, journal: Journal, rate_per_s: int) -> None:
        self._log = log
        self._journal = journal
        self._rate_per_s = rate_per_s
        self._in_flight: deque[tuple[int, asyncio.Future[Ack]]] = deque()
        self._last_ack_at = time.monotonic()

    async def run(self, seconds: float) -> None:
        """Returns when every append has its outcome."""
        started = time.monotonic()
        while (spent := time.monotonic() - started) < seconds:
            while self._journal.sent < spent * self._rate_per_s and len(self._in_flight) < WINDOW:
                self._append()
            if self._in_flight and (self._in_flight[0][1].done() or len(self._in_flight) >= WINDOW):
                await self._settle()
            else:
                await asyncio.sleep(PACE_S)
        while self._in_flight:
            await self._settle()

    def _append(self) -> None:
        number = self._journal.sent
        try:
            call = self._log.enqueue(value_of(number))
        except PendingFull:
            return
        self._journal.sent += 1
        self._in_flight.append((number, call))

    async def _settle(self) -> None:
        number, call = self._in_flight.popleft()
        journal = self._journal
        try:
            ack = await call
        except OutcomeUnknown:
            journal.unknown.add(number)
        except DLedgerError as refusal:
            journal.refused[refusal.code.value] += 1
        else:
            now = time.monotonic()
            journal.longest_gap_s = max(journal.longest_gap_s, now - self._last_ack_at)
            self._last_ack_at = now
            journal.numbers.append(number)
            journal.indexes.append(ack.index)


async def kill_and_revive(
    cluster: LocalCluster, log: Log, every_s: float, chance: random.Random, ended: asyncio.Event
) -> None:
    """kill -9 of a random node every ``every_s`` seconds, and its restart half-way to the next."""
    while not await happens(ended, every_s / 2):
        victim = chance.choice(list(cluster.nodes))
        leads = (await log.status()).leader == victim
        pid = await cluster.kill(victim)
        click.echo(f"kill -9 {victim} (pid {pid}){', the leader' if leads else ''}", err=True)
        await happens(ended, every_s / 2)
        await cluster.restart(victim)


async def soak(
    cluster: LocalCluster, seconds: float, kill_every_s: float, rate_per_s: int, seed: int
) -> dict[str, Any]:
    """The whole run; returns what the JSON line says."""
    journal = Journal()
    ended = asyncio.Event()
    await cluster.start()
    try:
        await cluster.wait_ready()
        async with connect(cluster.endpoints, timeout_ms=CALL_TIMEOUT_MS) as log:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(kill_and_revive(cluster, log, kill_every_s, random.Random(seed), ended), name="kills")
                showing = tasks.create_task(show(journal, seconds), name="progress")
                await Load(log, journal, rate_per_s).run(seconds)
                ended.set()
                showing.cancel()
            await cluster.wait_ready(SETTLE_TIMEOUT_S)
            findings = {}
            for node_id in cluster.nodes:
                records = await whole_log(log, node_id)
                click.echo(f"{node_id} holds {len(records):,} records", err=True)
                findings[node_id] = judge(journal, records)
    finally:
        await cluster.stop()
    return summary(journal, findings, seconds, seed)


async def show(journal: Journal, seconds: float) -> None:
    """Progress, until cancelled."""
    started = time.monotonic()
    with Progress("soak", seconds) as progress:
        while True:
            progress.update(time.monotonic() - started, f"{len(journal.numbers):,} acknowledged")
            await asyncio.sleep(0.5)


def summary(journal: Journal, findings: dict[str, Findings], seconds: float, seed: int) -> dict[str, Any]:
    """The last line."""
    worst = {name: max(getattr(found, name) for found in findings.values()) for name in Findings.__slots__}
    return {
        "ok": all(found.clean for found in findings.values()) and len(journal.numbers) > 0,
        "acknowledged": len(journal.numbers),
        "unknown": len(journal.unknown),
        "refused": dict(journal.refused),
        "longest_gap_s": round(journal.longest_gap_s, 2),
        **worst,
        "seconds": seconds,
        "seed": seed,
    }


@click.command()
@click.option("--minutes", default=5.0, help="How long.")
@click.option("--kill-every", default=10.0, help="Seconds from one kill -9 to the next.")
@click.option("--nodes", default=5, help="How many.")
@click.option("--rate", default=5_000, help="Appends a second.")
@click.option("--clients", default=0, help="Instead: so many clients come, cancel and go, and no node may grow.")
@click.option("--seed", default=None, type=int, help="Of what happens by chance; a new one by default.")
def main(minutes: float, kill_every: float, nodes: int, rate: int, clients: int, seed: int | None) -> int:  # noqa: PLR0917  # one for each option
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    data = Path(tempfile.mkdtemp(prefix="dledger-soak-"))
    if clients:
        cluster = LocalCluster(data, nodes=nodes, serve_flags=["--config", str(limits_file(data))])
        result = run(soak_with_clients(cluster, minutes * 60, clients, seed))
    else:
        result = run(soak(LocalCluster(data, nodes=nodes), minutes * 60, kill_every, rate, seed))
    if result["ok"]:
        shutil.rmtree(data)
    else:
        click.echo(f"the nodes' files and logs are kept in {data}", err=True)
    click.echo(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: main(standalone_mode=False)))
