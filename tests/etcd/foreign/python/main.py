"""Works with aetcd until its standard input ends, and then says what happened: ``python main.py ENDPOINTS``.

Each part prints a line ``step PART WORD`` whenever it has done a piece of its work. The last line is a JSON object. A
part that finds something wrong ends the program with the exit code 1.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import aetcd
from aetcd.exceptions import ConnectionFailedError

STEP_LIMIT_S = 20.0
"""A step that takes longer is stuck."""
RETRY_AFTER_S = 0.02
"""Nobody tells when a node leads again."""
PAUSE_S = 0.05
"""Between two steps: the nodes have the same processors, and the one that comes back needs some of them."""
COUNTERS = 3
COUNTING = 3
LOCKING = 3
LOCK_TTL_S = 10
"""No kill of a leader may take longer."""
LEASE_TTL_S = 6
COUNTER = b"counters/"
LOCK = b"mutex"
GUARD = b"guard/mutex"
LEASED = b"leased"

Result = TypeVar("Result")


class Wrong(Exception):
    """The cluster did what it must not do."""


def check(is_so: bool, complaint: str) -> None:
    if not is_so:
        raise Wrong(complaint)


def client_of(endpoints: str, **options: str) -> Any:
    """aetcd takes one host and one port. gRPC takes several addresses where both are put together again."""
    others, _, port = f"ipv4:{endpoints}".rpartition(":")
    return aetcd.Client(others, int(port), options={f"grpc.{name}": value for name, value in options.items()})


def step(part: str, word: object) -> None:
    print("step", part, word, flush=True)


class Found(NamedTuple):
    """A key that counts; without one it is 0."""

    value: int
    mod_revision: int


class Work:
    def __init__(self, endpoints: str) -> None:
        self.endpoints = endpoints
        self.client = client_of(endpoints, lb_policy_name="round_robin")
        self.stopped = asyncio.Event()
        self.doubts: Counter[str] = Counter()

    async def goes_on(self) -> bool:
        """False when no step shall begin any more."""
        try:
            await asyncio.wait_for(self.stopped.wait(), PAUSE_S)
        except TimeoutError:
            return True
        return False

    async def until(self, part: str, call: Callable[[], Awaitable[Result]]) -> Result:
        """Asks until the cluster has said yes or no. Each time there was no answer counts as a doubt: what was asked
        for may have been done."""
        async with asyncio.timeout(STEP_LIMIT_S):
            while True:
                try:
                    return await call()
                except ConnectionFailedError:
                    self.doubts[part] += 1
                await asyncio.sleep(RETRY_AFTER_S)

    async def found(self, part: str, key: bytes) -> Found:
        pair = await self.until(part, lambda: self.client.get(key))
        return Found(0, 0) if pair is None else Found(int(pair.value), pair.mod_revision)


class Counting:
    """Workers that add one to two counters in one transaction. A worker's own key tells it whether a transaction
    without an answer was done."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def run(self) -> dict[str, int]:
        async with asyncio.TaskGroup() as workers:
            tasks = [workers.create_task(self._count(b"counted/%d" % number)) for number in range(COUNTING)]
        counted = sum(task.result() for task in tasks)
        pairs = await self._work.until("counters", lambda: self._work.client.get_prefix(COUNTER))
        check(all(int(each.value) == each.version for each in pairs), f"a counter is not its version: {pairs}")
        total = sum(int(each.value) for each in pairs)
        check(total == 2 * counted, f"the sum is {total}; {counted} transactions added two each")
        return {"counted": counted, "doubts": self._work.doubts["counters"]}

    async def _count(self, own: bytes) -> int:
        counted = 0
        while await self._work.goes_on():
            keys = [COUNTER + b"%d" % number for number in random.sample(range(COUNTERS), 2)]
            while not await self._add(own, counted, keys):
                pass  # another worker was faster
            counted += 1
            step("counters", counted)
        return counted

    async def _add(self, own: bytes, counted: int, keys: list[bytes]) -> bool:
        """Whether it is done, by this attempt or by the one before."""
        found = {key: await self._work.found("counters", key) for key in (own, *keys)}
        if found[own].value == counted + 1:
            return True
        check(found[own].value == counted, f"{own!r} is {found[own].value} instead of {counted}")
        of = self._work.client.transactions
        is_done, _ = await self._work.until(
            "counters",
            lambda: self._work.client.transaction(
                compare=[of.mod(key) == each.mod_revision for key, each in found.items()],
                success=[of.put(key, b"%d" % (each.value + 1)) for key, each in found.items()],
                failure=[],
            ),
        )
        return bool(is_done)


class Locking:
    """Contenders for one lock, and a section where only one may be at a time."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._inside = 0
        self._fence = 0
        """The create revision of the holder's key, which grows from holder to holder."""

    async def run(self) -> dict[str, int]:
        await self._work.until("mutex", lambda: self._work.client.put(GUARD, b""))
        async with asyncio.TaskGroup() as contenders:
            tasks = [contenders.create_task(self._contend(number)) for number in range(LOCKING)]
        return {"sections": sum(task.result() for task in tasks), "doubts": self._work.doubts["mutex"]}

    async def _contend(self, number: int) -> int:
        work, sections = self._work, 0
        while await work.goes_on():
            me = b"%d/%d" % (number, sections)
            lock = work.client.lock(LOCK, ttl=LOCK_TTL_S)
            while not await work.until("mutex", partial(self._acquire, lock)):
                pass  # another one has it for longer than the client waits
            created = (await work.until("mutex", lambda: work.client.get(LOCK))).create_revision
            check(created > self._fence, f"{me!r} has the create revision {created} after {self._fence}")
            self._fence = created
            await self._move(created, b"", me)
            self._inside += 1
            check(self._inside == 1, f"{me!r} is not alone inside")
            await work.until("mutex", lock.refresh)
            self._inside -= 1
            await self._move(created, me, b"")
            await work.until("mutex", lock.release)
            sections += 1
            step("mutex", me.decode())
        return sections

    async def _acquire(self, lock: Any) -> bool:
        """An attempt without an answer may have brought the lock. aetcd would wait for itself then."""
        return bool(await lock.is_acquired() or await lock.acquire(timeout=5))

    async def _move(self, created: int, old: bytes, new: bytes) -> None:
        """A transaction that only the owner of the lock's key can do. An attempt without an answer may have done it."""
        of = self._work.client.transactions
        is_done, answers = await self._work.until(
            "mutex",
            lambda: self._work.client.transaction(
                compare=[of.create(LOCK) == created, of.value(GUARD) == old],
                success=[of.put(GUARD, new)],
                failure=[of.get(GUARD)],
            ),
        )
        check(is_done or answers[0][0][0] == new, f"{answers} is inside instead of {old!r}")


async def keep_alive(work: Work) -> dict[str, int]:
    """One lease that is kept alive, with a key, through all kills."""
    kept, created = 0, 0
    lease = await work.until("lease", lambda: work.client.lease(LEASE_TTL_S))
    await work.until("lease", lambda: work.client.put(LEASED, b"1", lease=lease))
    while True:
        answer = await work.until("lease", lease.refresh)
        check(answer.TTL == LEASE_TTL_S, f"the lease was lost after {kept} answers")
        pair = await work.until("lease", lambda: work.client.get(LEASED))
        check(pair is not None and created in {0, pair.create_revision}, f"the key of the lease is {pair}")
        created = pair.create_revision
        kept += 1
        step("lease", answer.TTL)
        try:
            await asyncio.wait_for(work.stopped.wait(), LEASE_TTL_S / 6)
        except TimeoutError:
            continue
        return {"kept": kept}


class Watching:
    """One watch of all counters. aetcd says when its node is gone; then there is a watch from where it was."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._values: Counter[bytes] = Counter()
        self._seen = 0
        self._nodes: list[int] = []
        self._progress = asyncio.Condition()

    async def run(self) -> None:
        while True:
            client = client_of(self._work.endpoints)
            try:
                async with client:
                    await self._watch(client)
            except ConnectionFailedError:
                await asyncio.sleep(RETRY_AFTER_S)

    async def _watch(self, client: Any) -> None:
        watch = await client.watch_prefix(COUNTER, start_revision=self._seen + 1)
        node = (await client.get_prefix(COUNTER)).header.member_id  # by the same connection
        if self._nodes[-1:] != [node]:
            self._nodes.append(node)
        async for event in watch:
            self._follow(event.kv)
            step("watch", node)
            async with self._progress:
                self._progress.notify_all()

    def _follow(self, pair: Any) -> None:
        """Each change adds one, and is told once, in the order of revisions."""
        self._values[pair.key] += 1
        count = self._values[pair.key]
        is_next = pair.version == count == int(pair.value) and pair.mod_revision >= self._seen
        check(is_next, f"{pair} was told after the revision {self._seen}, where the next value is {count}")
        self._seen = pair.mod_revision

    async def finish(self) -> dict[str, int]:
        """Waits for all changes that there are: nobody makes more."""
        pairs = await self._work.until("watch", lambda: self._work.client.get_prefix(COUNTER))
        last = max((each.mod_revision for each in pairs), default=0)
        async with asyncio.timeout(STEP_LIMIT_S), self._progress:
            await self._progress.wait_for(lambda: self._seen >= last)
        return {"events": self._values.total(), "moves": len(self._nodes) - 1}


async def end_of_input() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def main(endpoints: str) -> None:
    work = Work(endpoints)
    async with asyncio.TaskGroup() as parts:
        watching = Watching(work)
        watch = parts.create_task(watching.run())
        running = {
            "counters": parts.create_task(Counting(work).run()),
            "mutex": parts.create_task(Locking(work).run()),
            "lease": parts.create_task(keep_alive(work)),
        }
        await end_of_input()
        work.stopped.set()
        reports = {name: await part for name, part in running.items()}
        reports["watch"] = await watching.finish()
        watch.cancel()
    await work.client.close()
    print(json.dumps(reports), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
