"""``dledger spark demo``: Spark archives a live log, both are killed half-way, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.cluster import LocalCluster, last_words
from dledger.cli.demo import CALL_TIMEOUT_MS
from dledger.cli.demo_check import Fingerprint, compare
from dledger.cli.demo_feed import Feed, Milestone
from dledger.cli.demo_input import Source
from dledger.cli.demo_story import Story, leader_but
from dledger.cli.output import Progress
from dledger.cli.runtime import run
from dledger.cli.spark_session import session
from dledger.common.errors import Code, ConfigError, error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from dledger.client import Log

KILL_AT, HOLD_AT, REVIVE_AT = 0.4, 0.6, 0.8
TRICKLE_S = 0.5
"""The load goes on while Spark starts, a few thousand lines a second."""
BATCH_RECORDS = 40_000
"""Small micro-batches, so that there are some to be killed in."""
BATCHES_BEFORE_KILL = 2
DRIVER_KILLS = 2
PATIENCE_S = 600.0
POLL_S = 0.05
MOST_RESTARTS = 5
ROWS_AT_A_TIME = 65_536


class Archiver:
    """``dledger spark archive --follow`` as a process group of its own: a driver, its JVM, its workers."""

    def __init__(self, endpoints: str, out: Path) -> None:
        self._endpoints = endpoints
        self._out = out
        self._log_file = out.with_name("archiver.log")
        self._process: asyncio.subprocess.Process | None = None
        self.kills = 0
        self._restarts = 0

    @property
    def micro_batches(self) -> int:
        """How many were noted as done, by all runs together."""
        commits = self._out / "_checkpoint" / "commits"
        return sum(each.name.isdigit() for each in commits.iterdir()) if commits.is_dir() else 0

    async def start(self) -> None:
        """Begins, or goes on where the checkpoint stands."""
        from dledger.spark.session import BRIEF_JAVA  # noqa: PLC0415  # not for --help

        flags = ["--follow", "--batch-records", str(BATCH_RECORDS), "--endpoints", self._endpoints]
        with self._log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dledger", "spark", "archive", str(self._out), *flags),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "JAVA_TOOL_OPTIONS": BRIEF_JAVA},
                start_new_session=True,
            )

    async def kill(self) -> int:
        """kill -9 of the driver and of everything that it started; returns its pid."""
        assert self._process is not None
        pid = self._process.pid
        os.killpg(pid, signal.SIGKILL)
        await self._process.wait()
        self.kills += 1
        return pid

    async def done(self, micro_batches: int) -> None:
        """Returns once so many are. Raises CONFIG_ERROR when it ended by itself, TIMEOUT when it got nowhere."""
        deadline = time.monotonic() + PATIENCE_S
        while self.micro_batches < micro_batches:
            if self._process is not None and self._process.returncode is not None:
                self._restarts += 1
                if self._restarts > MOST_RESTARTS:
                    raise ConfigError(f"the archiver ended by itself: {last_words(self._log_file)}")
                await self.start()  # as its operator would: a busy machine is too slow for Spark's own limits
            if time.monotonic() > deadline:
                raise error(Code.TIMEOUT, f"no micro-batch was archived within {PATIENCE_S:.0f} s: {self._log_file}")
            await asyncio.sleep(POLL_S)  # another process cannot be awaited: it is asked

    def end(self) -> None:
        """Leaves nothing behind."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)


class SparkDemo:
    """The piece, and its numbers."""

    def __init__(self, source: Source, data: Path, nodes: int) -> None:
        self._source = source
        self._cluster = LocalCluster(data / "nodes", nodes=nodes)
        self._out = data / "archive"
        self._report = data / "report"
        self._archiver = Archiver(self._cluster.endpoints, self._out)
        self._tell = Story().tell
        self._kill_now, self._revive_now = Milestone(KILL_AT), Milestone(REVIVE_AT)
        self._go_on = asyncio.Event()

    async def play(self) -> dict[str, Any]:
        """Everything, from the first node's start to the last file's verdict."""
        from dledger.client import connect  # noqa: PLC0415  # gRPC is slow to import: not for --help

        cluster = self._cluster
        self._tell(f"{self._source.title}: {self._source.size_bytes / 1e6:.1f} MB")
        try:
            await cluster.start()
            ready = await cluster.wait_ready()
            self._tell(f"{ready.leader} leads term {ready.term} of {len(cluster.nodes)} nodes", fg="green")
            await self._archiver.start()
            self._tell("Spark begins to archive what is committed, beside the load")
            async with connect(cluster.endpoints, timeout_ms=CALL_TIMEOUT_MS) as log:
                feed = await self._load(log)
            await self._archiver.kill()
            self._tell("kill -9 of the Spark driver once more; a last run archives the rest and proves it", fg="red")
            found = await asyncio.to_thread(self._prove, feed)
        finally:
            self._archiver.end()
            cluster.kill_all()
            await cluster.stop()
        return found

    async def _load(self, log: Log) -> Feed:
        with Progress("  appending", self._source.size_bytes) as progress:
            feed = Feed(log, self._source, [self._kill_now, self._revive_now], progress)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._disturb(log), name="disturb")
                tasks.create_task(feed.run(HOLD_AT, self._go_on, trickle_s=TRICKLE_S), name="feed")
            progress.clear()
        self._tell(f"{len(feed.acked):,} lines acknowledged", fg="green")
        return feed

    async def _disturb(self, log: Log) -> None:
        """kill -9 of the leader and of the driver, in the middle of both their work; both come back."""
        await self._kill_now.wait()
        await self._archiver.done(BATCHES_BEFORE_KILL)
        victim = await leader_but(log, "")
        await self._cluster.kill(victim)
        archived = self._archiver.micro_batches
        pid = await self._archiver.kill()
        self._tell(f"kill -9 of the leader {victim}, and of the Spark driver and its JVM (pid {pid})", fg="red")
        successor = await leader_but(log, victim)
        await self._archiver.start()
        self._tell(f"{successor} leads; the archiver is started again, after {archived} micro-batches")
        await self._archiver.done(archived + 1)
        self._tell("it goes on where it was", fg="green")
        self._go_on.set()
        await self._revive_now.wait()
        await self._cluster.restart(victim)
        self._tell(f"{victim} is started again")

    def _prove(self, feed: Feed) -> dict[str, Any]:
        from dledger.spark.jobs import archive, audit, stats  # noqa: PLC0415  # not for --help

        log = {"dledger.endpoints": self._cluster.endpoints}
        with session("demo", "local[*,3]", is_brief=True) as spark:
            found = archive.archive(spark, log, self._out)
            self._tell(f"{found['records']:,} records archived, each compared with the log")
            missing, doubled = self._compare_with_input(spark, feed)
            audited = audit.audit(spark, [node.data_dir for node in self._cluster.nodes.values()])
            what = "agree" if audited.ok else "DO NOT AGREE"
            self._tell(
                f"{audited.frames:,} frames of {audited.nodes} nodes {what}", fg="green" if audited.ok else "red"
            )
            drawn = stats.plot(stats.sums(archive.read(spark, self._out)), self._report, "dledger spark demo")
            self._tell(f"drawn: {drawn['html']}")
        return {
            "records": len(feed.acked),
            "missing": max(missing, found["missing"]),
            "doubled": max(doubled, found["doubled"]),
            "differing": found["differing"],
            "driver_kills": self._archiver.kills,
            "leader_kills": 1,
            "micro_batches": self._archiver.micro_batches,
            "audit_ok": audited.ok,
            "longest_gap_ms": drawn["longest_gap_ms"],
            "report": drawn["html"],
        }

    def _compare_with_input(self, spark: SparkSession, feed: Feed) -> tuple[int, int]:
        """Lines missing in the archive, and records that no line accounts for."""
        from dledger.spark.jobs import archive  # noqa: PLC0415  # not for --help

        table = archive.read(spark, self._out).select("index", "value").toArrow().sort_by("index")
        found = Fingerprint()
        for records in _lists(table):
            found.add(records)
        if found.same_as(feed.fingerprint):
            self._tell(f"the archive is the input: sha256 {found.value[:16]}…", fg="green")
            return 0, 0
        verdict = compare(self._source.lines(), feed.acked, _lists(table))
        return verdict.lost, verdict.duplicated


def _lists(table: pa.Table) -> Iterator[list[bytes]]:
    for batch in table.select(["value"]).to_batches(ROWS_AT_A_TIME):
        yield batch.column(0).to_pylist()


def play(source: Source, nodes: int) -> tuple[dict[str, Any], bool]:
    """The numbers, and whether nothing is missing, doubled or wrong. The files are kept where something is."""
    data = Path(tempfile.mkdtemp(prefix="dledger-spark-demo-"))
    clean = False
    try:
        found = run(SparkDemo(source, data, nodes).play())
        clean = not (found["missing"] or found["doubled"] or found["differing"]) and found["audit_ok"]
        clean = clean and found["driver_kills"] >= DRIVER_KILLS
    finally:
        if clean:
            for part in ("nodes", "archive"):
                shutil.rmtree(data / part)
        else:
            click.echo(f"Everything is kept in {data}.", err=True)
    return found, clean
