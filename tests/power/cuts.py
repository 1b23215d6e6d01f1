"""Rounds of power cuts: three nodes, each on a volume of its own, lose power one at a time and all at once."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from random import Random

from dledger.cli.cluster import LocalCluster
from dledger.client import Log, connect
from dledger.common.errors import DLedgerError, OutcomeUnknown
from dledger.common.types import Ack
from tests.power.journal import AckJournal, Findings, value_of
from tests.power.volume import CannotMountError, Volume
from tests.support.reading import whole_log

NODES = ("n0", "n1", "n2")
CUTS_A_ROUND = 8
"""Then the volumes are made anew: reading all that there is takes longer with each cut."""
CALL_TIMEOUT_MS = 60_000
WORKERS = 4
BATCH = 10
LARGE_RECORDS = 3
PACE_S = 0.01
"""What each worker waits between two batches, or reading it all would take longer than everything else."""
SHARE_OF_ALL = 0.5
LIMITS = "[limits]\nsegment_max_bytes = 4194304\ndisk_refuse_free_bytes = 1\ndisk_warn_free_bytes = 2\n"

SERVE = (sys.executable, "-m", "dledger")
SERVE_ON_SLOW_DISKS = (sys.executable, "-m", "tests.power.slow_syncs")
HONEST = (SERVE_ON_SLOW_DISKS, SERVE)
_WITHOUT_AIO = (
    "import dledger.disk.syncer as syncer; syncer.linux_aio = None; from dledger.cli.main import main; main()"
)
LYING = ("env", "LD_PRELOAD=libeatmydata.so", sys.executable, "-c", _WITHOUT_AIO)
"""Nodes whose syncs say that all is well and do nothing. A group commit goes to the kernel's AIO, past every library:
``eatmydata`` gets to see it where there is no AIO, and a thread calls fdatasync."""

_OPENED = re.compile(r"log opened .*\btorn_bytes=(\d+)")
_DOUBTED = "a member is not what it was"


OnCut = Callable[["Report"], None]
"""Told after each cut that was judged."""


def _ignore(_: Report) -> None:
    """Nobody wants to know."""


@dataclass(slots=True)
class Report:
    """What happened, over all rounds."""

    cuts: Counter[str] = field(default_factory=Counter)
    """Of ``one`` node, and of ``all``."""
    acknowledged: int = 0
    unknown: int = 0
    tails_cut: int = 0
    """Starts that found bytes behind the last good frame."""
    doubted: int = 0
    """How often a node came back with a disk that the others did not know, or without what they had heard from it."""
    findings: Findings = field(default_factory=Findings)
    refusals: list[str] = field(default_factory=list)
    """Nodes that did not come back, in their own words."""

    def add(self, findings: Findings) -> None:
        self.findings = Findings._make(map(max, self.findings, findings))

    def add_words(self, directory: Path) -> None:
        """What the nodes' own logs say."""
        logs = [path.read_text(errors="replace") for path in directory.glob("n?.log")]
        self.tails_cut += sum(int(torn) > 0 for text in logs for torn in _OPENED.findall(text))
        self.doubted += sum(text.count(_DOUBTED) for text in logs)

    @property
    def is_clean(self) -> bool:
        return self.findings.clean and not self.doubted and not self.refusals

    @property
    def ok(self) -> bool:
        """Nothing is wrong, and there was something to go wrong: a run that cut no tail has proved nothing."""
        return self.is_clean and self.acknowledged > 0 and self.tails_cut > 0

    def __str__(self) -> str:
        one, everyone = self.cuts["one"], self.cuts["all"]
        lost, doubled, out_of_order, foreign = self.findings
        return (
            f"{one + everyone} power cuts ({one} of one node, {everyone} of all), {self.acknowledged} acknowledged, "
            f"{self.unknown} unknown, {self.tails_cut} tails cut, {lost} lost, {doubled} doubled, "
            f"{out_of_order} out of order, {foreign} foreign, {self.doubted} doubted, {len(self.refusals)} failed"
        )


class Round:
    """A cluster, a client that appends all the time, and its journal."""

    def __init__(self, data: Path, cluster: LocalCluster, volumes: Mapping[str, Volume], report: Report) -> None:
        self._cluster = cluster
        self._volumes = volumes
        self._report = report
        self._journal = AckJournal(data / "acks")

    async def run(self, cuts: int, chance: Random, on_cut: OnCut) -> None:
        async with connect(self._cluster.endpoints, timeout_ms=CALL_TIMEOUT_MS) as log:
            for _ in range(cuts):
                victims = NODES if chance.random() < SHARE_OF_ALL else (chance.choice(NODES),)
                before = self.acknowledged
                await self.appending_through(log, victims, chance)
                await self.judge(log)
                self._report.acknowledged += self.acknowledged - before
                self._report.cuts["all" if len(victims) > 1 else "one"] += 1
                on_cut(self._report)
        self._report.unknown += len(self._journal.unknown)
        self._journal.close()

    @property
    def acknowledged(self) -> int:
        return self._journal.acknowledged

    async def judge(self, log: Log, nodes: Sequence[str] = NODES) -> None:
        """Holds the log of each of ``nodes`` against the journal."""
        for node_id in nodes:
            self._report.add(self._journal.judge(await whole_log(log, node_id)))

    async def appending_while(self, log: Log, trouble: Coroutine[None, None, None]) -> None:
        """Appends until ``trouble`` is over."""
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._append_all_along(log, ended), name="appends")
            await trouble
            ended.set()

    async def appending_through(self, log: Log, victims: Sequence[str], chance: Random) -> None:
        """Appends before the cut, through it, and until the victims are back. Large records are on their way at the
        cut itself: they take several writes to the device, of which some may be done."""

        async def trouble() -> None:
            await asyncio.sleep(chance.uniform(0.05, 0.5))
            async with asyncio.TaskGroup() as tasks:
                for _ in range(LARGE_RECORDS):
                    tasks.create_task(self._append_large(log), name="a large append")
                await asyncio.sleep(chance.uniform(0.005, 0.05))
                await self.cut(victims, chance)
                await self._cluster.wait_ready()

        await self.appending_while(log, trouble())

    async def cut(self, victims: Sequence[str], chance: Random) -> None:
        """The power goes at ``victims``, and comes back."""
        for victim in victims:
            self._volumes[victim].scatter(chance)
        for victim in victims:
            self._volumes[victim].cut_power()
        for victim in victims:
            if self._cluster.nodes[victim].running:  # it may have seen its disk go, and ended
                await self._cluster.kill(victim)
        for victim in victims:
            await asyncio.to_thread(self._volumes[victim].power_on)
            await self._cluster.restart(victim)

    async def _append_all_along(self, log: Log, ended: asyncio.Event) -> None:
        while not ended.is_set():
            await self.append(log)
            await asyncio.sleep(PACE_S)

    async def append(self, log: Log) -> None:
        """A batch, until it has its outcome."""
        await self._append(log, self._journal.take(BATCH))

    async def _append_large(self, log: Log) -> None:
        await self._append(log, self._journal.take_large())

    async def _append(self, log: Log, numbers: range) -> None:
        """An ack counts when the journal has it."""
        outcomes = await asyncio.gather(*(log.append(value_of(each)) for each in numbers), return_exceptions=True)
        acks: list[tuple[int, Ack]] = []
        for number, outcome in zip(numbers, outcomes, strict=True):
            if isinstance(outcome, Ack):
                acks.append((number, outcome))
            elif isinstance(outcome, OutcomeUnknown):
                self._journal.unknown.add(number)
            elif not isinstance(outcome, DLedgerError):
                raise outcome
        await asyncio.to_thread(self._journal.write, acks)


async def cut_power(
    data: Path,
    filesystem: str,
    cuts: int,
    *,
    seed: int,
    programs: Sequence[Sequence[str]] = HONEST,
    on_cut: OnCut = _ignore,
) -> Report:
    """``cuts`` power cuts, in rounds, with one of ``programs`` after the other as the nodes; up to three times as many
    while no tail was cut. Ends early when something is wrong. Raises CannotMountError."""
    report = Report()
    chance = Random(seed)
    done = 0
    for program in cycle(programs):
        is_enough = done >= (cuts if report.tails_cut else 3 * cuts)
        if is_enough or not report.is_clean:
            break
        number = min(CUTS_A_ROUND, cuts - done if done < cuts else cuts)
        directory = data / f"round-{done}"
        keeps = lambda: not report.is_clean  # noqa: E731
        async with volumes_with_nodes(directory, filesystem, program, keeps=keeps) as (cluster, volumes):
            try:
                await Round(directory, cluster, volumes, report).run(number, chance, on_cut)
            except* (DLedgerError, CannotMountError) as failed:
                report.refusals += [_said(each) for each in _leaves(failed)]
            report.add_words(directory)
        if report.is_clean:
            shutil.rmtree(directory)
        done += number
    return report


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def _said(failure: BaseException) -> str:
    kind = failure.code.value if isinstance(failure, DLedgerError) else type(failure).__name__
    return f"{kind}: {failure}"


@asynccontextmanager
async def volumes_with_nodes(
    directory: Path, filesystem: str, program: Sequence[str], *, keeps: Callable[[], bool] = lambda: False
) -> AsyncIterator[tuple[LocalCluster, dict[str, Volume]]]:
    """Three nodes that run, each on its own volume. Their images stay where in the end ``keeps`` says so."""
    directory.mkdir(parents=True)
    limits = directory / "limits.toml"
    limits.write_text(LIMITS)
    volumes = {node_id: Volume(directory / node_id, filesystem) for node_id in NODES}
    with ExitStack() as stack:
        for volume in volumes.values():
            stack.callback(lambda volume=volume: volume.unmount() if keeps() else volume.remove())  # type: ignore[misc]
            volume.create()
        cluster = LocalCluster(directory, nodes=len(NODES), serve_flags=["--config", str(limits)], program=program)
        await cluster.start()
        try:
            await cluster.wait_ready()
            yield cluster, volumes
        finally:
            cluster.kill_all()
            await cluster.stop()
