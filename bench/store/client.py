"""Works on the store through the SDK: ``python -m bench.store.client WORK ENDPOINTS …``.

Each says JSON objects, a line each. One that goes on ends with its stdin.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator

import click

from bench.drivers.python_load import say
from bench.store.many_leases import expire_together
from bench.store.many_watches import tell_all
from dledger.cli.runtime import run
from dledger.client import connect_cluster
from dledger.client.store import Op, Store
from dledger.common.errors import Compacted, DLedgerError
from dledger.common.memory import keep_freed_memory

KEYS_A_TRANSACTION = 64
FILL_INFLIGHT = 32
FILL_TELLS_S = 5.0
WINDOW_S = 0.25
KEPT_REVISIONS = 1_000
COMPACT_S = 1.0


@click.group()
def client() -> None:
    keep_freed_memory()


endpoints_argument = click.argument("endpoints")
keys_argument = click.argument("keys", type=click.IntRange(1))
size_argument = click.argument("size", type=click.IntRange(0))


@client.command()
@endpoints_argument
@keys_argument
@size_argument
def fill(*, endpoints: str, keys: int, size: int) -> None:
    """Puts so many keys, many to a transaction."""
    run(_fill(endpoints, keys, size))


@client.command()
@endpoints_argument
@keys_argument
@size_argument
@click.argument("inflight", type=click.IntRange(1))
@click.option("--compacts", is_flag=True, help="Forgets the history every second: the state stays as it is.")
def load(*, endpoints: str, keys: int, size: int, inflight: int, compacts: bool) -> None:
    """Puts keys at random until stdin ends; says how many in each window."""
    run(_load(endpoints, keys, size, inflight, compacts=compacts))


@client.command()
@endpoints_argument
@click.argument("count", type=click.IntRange(1))
@click.argument("ttl_s", type=click.IntRange(1))
def leases(*, endpoints: str, count: int, ttl_s: int) -> None:
    """Grants so many leases, has all of them timed anew at once, and says when they are gone."""
    run(expire_together(endpoints, count, ttl_s))


@client.command()
@endpoints_argument
@click.argument("count", type=click.IntRange(1))
def watches(*, endpoints: str, count: int) -> None:
    """Watches one key so many times on the first node that is named. For each line it puts the key, and says when all
    were told."""
    run(tell_all(endpoints, count, _stdin()))


def key_of(number: int) -> str:
    return f"key/{number:012}"


async def _fill(endpoints: str, keys: int, size: int) -> None:
    batches = iter(range(0, keys, KEYS_A_TRANSACTION))
    began = told = time.monotonic()
    done = 0
    async with connect_cluster(endpoints) as cluster:
        store = cluster.store()

        async def put_some() -> None:
            nonlocal done, told
            for first in batches:
                numbers = range(first, min(first + KEYS_A_TRANSACTION, keys))
                await store.txn(success=[Op.put(key_of(each), os.urandom(size)) for each in numbers])
                done += len(numbers)
                if time.monotonic() - told > FILL_TELLS_S:
                    told = time.monotonic()
                    say(event="filling", done=done)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(FILL_INFLIGHT):
                tasks.create_task(put_some())
    say(event="filled", keys=done, seconds=round(time.monotonic() - began, 2))


async def _load(endpoints: str, keys: int, size: int, inflight: int, *, compacts: bool) -> None:
    async with connect_cluster(endpoints) as cluster:
        load = Load(cluster.store(), keys, size)
        works = [load.put_on() for _ in range(inflight)]
        works.append(load.tell())
        if compacts:
            works.append(load.compact())
        tasks = [asyncio.ensure_future(work) for work in works]
        ending = asyncio.ensure_future(_end_of_stdin())
        done, _ = await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in [ending, *tasks]:
            task.cancel()
        for task in done - {ending}:
            task.result()  # raises what ended it


class Load:
    """Puts that are under way all the time."""

    def __init__(self, store: Store, keys: int, size: int) -> None:
        self._store = store
        self._keys = keys
        self._value = os.urandom(size)
        self._puts = self._errors = self._revision = 0

    async def put_on(self) -> None:
        while True:
            try:
                self._revision = await self._store.put(key_of(int(random.random() * self._keys)), self._value)
            except DLedgerError as failure:
                self._errors += 1
                print(repr(failure), file=sys.stderr)
                await asyncio.sleep(WINDOW_S)
            else:
                self._puts += 1

    async def tell(self) -> None:
        """What each window had."""
        since = time.time()
        while True:
            await asyncio.sleep(WINDOW_S)
            now = time.time()
            say(
                event="window",
                began_s=since,
                ended_s=now,
                puts=self._puts,
                errors=self._errors,
                revision=self._revision,
            )
            since, self._puts, self._errors = now, 0, 0

    async def compact(self) -> None:
        while True:
            await asyncio.sleep(COMPACT_S)
            if self._revision > KEPT_REVISIONS:
                try:
                    await self._store.compact(self._revision - KEPT_REVISIONS)
                except Compacted:
                    continue  # nothing was put since


async def _stdin() -> AsyncIterator[str]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode()


async def _end_of_stdin() -> None:
    async for _ in _stdin():
        pass


if __name__ == "__main__":
    client()
