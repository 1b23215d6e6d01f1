"""``dledger demo kv``: words counted by transactions, two dead leaders, and the proof that none was lost or doubled."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dledger.cli.cluster import LocalCluster
from dledger.cli.demo_input import Source, standard_library
from dledger.cli.demo_story import Story, leader_but
from dledger.cli.options import DEV_NODES, option
from dledger.cli.output import Progress, print_json
from dledger.cli.runtime import EXIT_BAD, EXIT_OK, run
from dledger.common.types import META_GROUP

if TYPE_CHECKING:
    from dledger.client import Cluster, Log, Store

WORKERS = 16
SHARES = 3 * WORKERS
"""The files are dealt into so many shares; a worker counts one after the other."""
BUCKETS = 64
"""Words of one bucket are next to each other in the store, and are changed together."""
MAX_KEYS = 60
"""Of one transaction: each is compared, and put."""
KILLS_AT = (1 / 3, 2 / 3)
CALL_TIMEOUT_MS = 30_000
WORD = re.compile(rb"[a-z]{3,}")


class Chunk(NamedTuple):
    """Words that are counted by one transaction."""

    bucket: int
    counts: dict[bytes, int]


@click.command("kv", short_help="Words counted in the store, and two killed leaders.")
@option("--nodes", env="NODES", default=DEV_NODES, type=click.IntRange(3, 9), help="How many.")
def demo_kv(*, nodes: int) -> int:
    """Counts the words of CPython's standard library in the store of five nodes, and kills its leader twice.

    Sixteen workers add their counts, each addition a transaction that compares what it has read. Behind each the worker
    reads a key again, which must not be older. In the end every count is compared with one that was made without the
    store. Prints one JSON line, and exits with 0 only if all are equal. Takes free ports and a temporary directory.
    """
    data = Path(tempfile.mkdtemp(prefix="dledger-demo-"))
    result: dict[str, Any] = {"failed": True}
    try:
        result = run(_DemoKv(standard_library(), LocalCluster(data, nodes=nodes)).play())
    finally:
        if result["failed"]:
            click.echo(f"The nodes' files and logs are kept in {data}.", err=True)
        else:
            shutil.rmtree(data)
    print_json(result)
    return EXIT_BAD if result["failed"] else EXIT_OK


class _DemoKv:
    def __init__(self, source: Source, cluster: LocalCluster) -> None:
        self._source = source
        self._cluster = cluster
        self._story = Story()
        self._shares = [_words_of(source.files[at::SHARES]) for at in range(SHARES)]
        self._expected: Counter[bytes] = sum(self._shares, Counter())
        self._total = sum(self._expected.values())
        self._counted = 0
        self._conflicts = 0
        self._transactions = 0
        self._stale_reads = 0
        self._kills = 0
        self._reached = [asyncio.Event() for _ in KILLS_AT]

    async def play(self) -> dict[str, Any]:
        """The whole piece; returns its numbers."""
        from dledger.client import connect_cluster  # noqa: PLC0415  # gRPC is slow to import: not for --help

        tell, nodes = self._story.tell, self._cluster
        tell(f"{self._source.title}: {self._total:,} words, {len(self._expected):,} different ones")
        tell(f"starting {', '.join(nodes.nodes)} in {nodes.data}")
        try:
            await nodes.start()
            await nodes.wait_ready()
            async with connect_cluster(nodes.endpoints, timeout_ms=CALL_TIMEOUT_MS) as cluster:
                await self._count(cluster)
                return await self._judge(cluster.store())
        finally:
            nodes.kill_all()
            await nodes.stop()

    async def _count(self, cluster: Cluster) -> None:
        began_s = time.monotonic()
        shares = iter(enumerate(self._shares))
        with Progress("  counting", self._total) as self._progress:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._disturb(cluster.log(META_GROUP)), name="disturb")
                for _ in range(WORKERS):
                    tasks.create_task(self._work(cluster.store(), shares), name="worker")
        took_s = time.monotonic() - began_s
        rate = self._transactions / took_s
        self._story.tell(
            f"counted in {took_s:.1f} s: {self._transactions:,} transactions, {rate:,.0f} a second; "
            f"{self._conflicts:,} met another worker's, and were made anew",
            fg="green",
        )

    async def _work(self, store: Store, shares: Iterator[tuple[int, Counter[bytes]]]) -> None:
        for number, words in shares:
            chance = Random(number)
            chunks = list(_chunks_of(words))
            chance.shuffle(chunks)
            for chunk in chunks:
                await self._add(store, chunk, chance)

    async def _add(self, store: Store, chunk: Chunk, chance: Random) -> None:
        """Adds the counts to those in the store: all of them, once."""
        from dledger.client import Compare, Op  # noqa: PLC0415  # as above

        prefix = _prefix(chunk.bucket)
        while True:
            known = {each.key: each for each in await store.range(prefix=prefix)}
            seen = {prefix + word: known.get(prefix + word) for word in chunk.counts}
            done = await store.txn(
                [Compare.modified(key, "==", each.mod_revision if each else 0) for key, each in seen.items()],
                [
                    Op.put(key, b"%d" % (chunk.counts[key.removeprefix(prefix)] + (int(each.value) if each else 0)))
                    for key, each in seen.items()
                ],
            )
            self._transactions += 1
            if done.succeeded:
                break
            self._conflicts += 1
        key = chance.choice(list(seen))
        again = await store.get(key)
        if again is None or again.mod_revision < done.revision:
            self._stale_reads += 1
        self._counted += sum(chunk.counts.values())
        self._progress.update(self._counted)
        for at, reached in zip(KILLS_AT, self._reached, strict=True):
            if self._counted >= at * self._total:
                reached.set()

    async def _disturb(self, meta: Log) -> None:
        """kill -9 of the leader, twice; each comes back."""
        for number, reached in enumerate(self._reached, start=1):
            await reached.wait()
            victim = await leader_but(meta, "")
            pid = await self._cluster.kill(victim)
            killed_s = time.monotonic()
            self._kills += 1
            self._tell(f"kill -9 of the leader {victim} (pid {pid}), the {('first', 'second')[number - 1]}", fg="red")
            successor = await leader_but(meta, victim)
            self._tell(f"{successor} leads, {(time.monotonic() - killed_s) * 1000:.0f} ms after the kill", fg="green")
            await self._cluster.restart(victim)

    def _tell(self, what: str, **style: Any) -> None:
        self._progress.clear()
        self._story.tell(what, **style)

    async def _judge(self, store: Store) -> dict[str, Any]:
        found: Counter[bytes] = Counter()
        async for page in store.pages(prefix=b"words/"):
            for each in page:
                found[each.key.split(b"/", 2)[2]] = int(each.value)
        lost = sum((self._expected - found).values())
        doubled = sum((found - self._expected).values())
        is_equal = found == self._expected and not self._stale_reads
        counted = sum(found.values())
        if is_equal:
            self._story.tell(f"all {len(found):,} counts are those of the files", fg="green")
        else:
            self._story.tell(f"{lost:,} words are lost, {doubled:,} were counted twice", fg="red", bold=True)
        return {
            "counted": counted,
            "expected": self._total,
            "lost": lost,
            "doubled": doubled,
            "stale_reads": self._stale_reads,
            "leader_kills": self._kills,
            "failed": not is_equal,
        }


def _prefix(bucket: int) -> bytes:
    return b"words/%02d/" % bucket


def _words_of(files: tuple[Path, ...]) -> Counter[bytes]:
    words: Counter[bytes] = Counter()
    for path in files:
        words.update(WORD.findall(path.read_bytes().lower()))
    return words


def _chunks_of(words: Counter[bytes]) -> Iterator[Chunk]:
    buckets: list[list[bytes]] = [[] for _ in range(BUCKETS)]
    for word in words:
        buckets[zlib.crc32(word) % BUCKETS].append(word)
    for bucket, members in enumerate(buckets):
        for at in range(0, len(members), MAX_KEYS):
            yield Chunk(bucket, {word: words[word] for word in members[at : at + MAX_KEYS]})
