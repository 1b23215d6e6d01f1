"""``dledger demo``: real input, a dead leader, and the proof that nothing was lost."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.cluster import LocalCluster
from dledger.cli.demo_check import Fingerprint, Verdict, compare, dense, worst
from dledger.cli.demo_feed import Feed, Milestone
from dledger.cli.demo_input import Source, one_file, standard_library
from dledger.cli.demo_kv import demo_kv
from dledger.cli.demo_story import CATCH_UP_TIMEOUT_S, POLL_S, Story, leader_but
from dledger.cli.options import DEV_NODES, option, output_option
from dledger.cli.output import Progress, print_json, table
from dledger.cli.runtime import EXIT_BAD, EXIT_OK, run
from dledger.common.errors import Code, error
from dledger.common.types import Consistency

if TYPE_CHECKING:
    from dledger.client import Batch, Log

KILL_AT, HOLD_AT, REVIVE_AT = 0.5, 0.6, 0.75
CALL_TIMEOUT_MS = 30_000


@click.group(
    invoke_without_command=True, short_help="Real input, a killed leader, and the proof that nothing was lost."
)
@click.pass_context
@option("--nodes", env="NODES", default=DEV_NODES, type=click.IntRange(3, 9), help="How many.")
@option("--file", env="FILE", metavar="PATH", type=click.Path(exists=True, dir_okay=False), help="Other input.")
@output_option("table", "json")
def demo(context: click.Context, *, nodes: int, file: str | None, output: str) -> int:
    """Appends every line of CPython's standard library to five nodes, kills the leader half-way, and checks each node.

    Every line is an append of its own. The dead node is brought back, then the whole log is read from each node and
    compared with the input by SHA-256 over each record's length and bytes. Exits with 0 only if nothing was lost,
    duplicated or reordered. Takes free ports and a temporary directory.
    """
    if context.invoked_subcommand is not None:
        return EXIT_OK
    source = one_file(Path(file)) if file else standard_library()
    data = Path(tempfile.mkdtemp(prefix="dledger-demo-"))
    clean = False
    try:
        result = run(_Demo(source, LocalCluster(data, nodes=nodes), Story()).play())
        clean = not (result["lost"] or result["duplicated"] or result["out_of_order"])
    finally:
        if clean:
            shutil.rmtree(data)
        else:
            click.echo(f"The nodes' files and logs are kept in {data}.", err=True)
    _show(result, output)
    return EXIT_OK if clean else EXIT_BAD


demo.add_command(demo_kv)


class _Demo:
    def __init__(self, source: Source, cluster: LocalCluster, story: Story) -> None:
        self._source = source
        self._cluster = cluster
        self._tell = story.tell
        self._kill_now = Milestone(KILL_AT)
        self._revive_now = Milestone(REVIVE_AT)
        self._killed = asyncio.Event()
        self._clear_line: Callable[[], None] = _nothing

    async def play(self) -> dict[str, Any]:
        """The whole piece; returns its numbers."""
        from dledger.client import connect  # noqa: PLC0415  # gRPC is slow to import: not for --help

        cluster = self._cluster
        self._tell(f"{self._source.title}: {self._source.size_bytes / 1e6:.1f} MB")
        self._tell(f"starting {', '.join(cluster.nodes)} in {cluster.data}")
        try:
            await cluster.start()
            ready = await cluster.wait_ready()
            self._tell(f"{ready.leader} leads term {ready.term}; appending, a call a line", fg="green")
            async with connect(cluster.endpoints, timeout_ms=CALL_TIMEOUT_MS) as log:
                feed = await self._append(log)
                verdicts = [await self._check(log, node_id, feed) for node_id in cluster.nodes]
        finally:
            cluster.kill_all()
            await cluster.stop()
        return _numbers(feed, worst(verdicts))

    async def _append(self, log: Log) -> Feed:
        with Progress("  appending", self._source.size_bytes) as progress:
            feed = Feed(log, self._source, [self._kill_now, self._revive_now], progress)
            self._clear_line = progress.clear
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._disturb(log), name="disturb")
                tasks.create_task(feed.run(HOLD_AT, self._killed), name="feed")
        self._tell(f"{len(feed.acked):,} lines acknowledged in {feed.duration_s:.1f} s", fg="green")
        return feed

    async def _disturb(self, log: Log) -> None:
        """kill -9 of the leader half-way, and its return."""
        await self._kill_now.wait()
        victim = await leader_but(log, "")
        pid = await self._cluster.kill(victim)
        killed_at = time.monotonic()
        self._killed.set()
        self._event(f"half-way: kill -9 of the leader {victim} (pid {pid})", fg="red")
        successor = await leader_but(log, victim)
        self._event(f"{successor} leads, {(time.monotonic() - killed_at) * 1000:.0f} ms after the kill", fg="green")
        await self._revive_now.wait()
        pid = await self._cluster.restart(victim)
        self._event(f"{victim} is started again (pid {pid})")

    def _event(self, what: str, **style: Any) -> None:
        self._clear_line()
        self._tell(what, **style)

    async def _check(self, log: Log, node_id: str, feed: Feed) -> Verdict:
        """Reads the node's own copy and compares it with the input."""
        _, commit_index = await log.bounds()
        await _reaches(log, node_id, commit_index)
        end = commit_index + 1
        found = Fingerprint()
        with Progress(f"  reading {node_id}", end) as progress:
            async with aclosing(_copy(log, node_id, end)) as batches:
                async for batch in batches:
                    found.add(batch.records())
                    progress.update(found.count)
        if found.same_as(feed.fingerprint) and dense(feed.acked):
            self._tell(f"{node_id} holds all {found.count:,} lines: sha256 {found.value[:16]}… is the input's")
            return Verdict()
        records = [batch.records() async for batch in _copy(log, node_id, end)]
        verdict = compare(self._source.lines(), feed.acked, records)
        self._tell(f"{node_id} differs from the input: {verdict}", fg="red", bold=True)
        return verdict


def _nothing() -> None:
    """There is no progress line to take away."""


def _copy(log: Log, node_id: str, end: int) -> AsyncGenerator[Batch]:
    return log.read_batches(0, end, consistency=Consistency.COMMITTED, node=node_id)


async def _reaches(log: Log, node_id: str, commit_index: int) -> None:
    """Waits until the node knows everything up to ``commit_index`` to be committed."""
    deadline = time.monotonic() + CATCH_UP_TIMEOUT_S
    while time.monotonic() < deadline:
        node = (await log.status()).node(node_id)
        if node is not None and node.reachable and node.commit_index >= commit_index:
            return
        await asyncio.sleep(POLL_S)
    raise error(Code.TIMEOUT, f"{node_id} did not reach index {commit_index} within {CATCH_UP_TIMEOUT_S:.0f} s")


def _numbers(feed: Feed, verdict: Verdict) -> dict[str, Any]:
    payload_bytes = feed.sent_bytes - len(feed.acked)
    return {
        "records": len(feed.acked),
        "mb": round(payload_bytes / 1e6, 1),
        "seconds": round(feed.duration_s, 1),
        "records_per_s": round(len(feed.acked) / feed.duration_s),
        "longest_gap_ms": round(feed.longest_gap_s * 1000),
        **verdict._asdict(),
    }


def _show(result: dict[str, Any], output: str) -> None:
    if output == "json":
        print_json(result)
        return
    head = ("records", "MB", "seconds", "records/s", "longest gap ms", "lost", "duplicated", "out of order")
    click.echo("\n" + table(head, [[f"{value:,}" for value in result.values()]]))
