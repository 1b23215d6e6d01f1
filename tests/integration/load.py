"""A program that appends without a pause through the SDK, while things happen to the nodes."""

from __future__ import annotations

import asyncio
from itertools import count, pairwise
from typing import NamedTuple, Self

import dledger
from dledger.client import Log

WORKERS = 8
PAUSE_S = 0.002


class Acked(NamedTuple):
    at_s: float
    number: int
    index: int  # type: ignore[assignment]  # a field, not tuple.index


class Load:
    """Numbers, appended by a few workers, one call after the other each. No call may fail, whatever happens."""

    def __init__(self, endpoints: str) -> None:
        self.endpoints = endpoints
        self._numbers = count()
        self._changed = asyncio.Event()
        self._is_ending = False
        self.acks: list[Acked] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="load")
        await self.next_ack()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Raises what an append raised."""
        self._is_ending = True
        await self._task

    async def _run(self) -> None:
        async with dledger.connect(self.endpoints) as log, asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._work(log))

    async def _work(self, log: Log) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_ending:
            number = next(self._numbers)
            ack = await log.append(b"%d" % number)
            self.acks.append(Acked(loop.time(), number, ack.index))
            self._changed.set()
            await asyncio.sleep(PAUSE_S)

    async def next_ack(self) -> None:
        """Returns at the next acknowledgement of an append that was sent from now on; raises what an append raised."""
        sent_by_now = next(self._numbers)
        while not self.acks or self.acks[-1].number <= sent_by_now:
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait([changed, self._task], return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if self._task.done():
                self._task.result()

    def longest_gap_s(self, since_s: float) -> float:
        """The longest time without an ack."""
        times = [since_s, *(ack.at_s for ack in self.acks if ack.at_s > since_s)]
        return max(later - earlier for earlier, later in pairwise(times))

    async def check(self, *node_ids: str) -> None:
        """Once it has ended, and the logs are equal: all that was acknowledged is in each node's log, once, where its
        ack said."""
        first, last = min(ack.index for ack in self.acks), max(ack.index for ack in self.acks)
        expected = {ack.index: b"%d" % ack.number for ack in self.acks}
        async with dledger.connect(self.endpoints) as log:
            for node_id in node_ids:
                reading = log.read(first, last + 1, consistency=dledger.Consistency.COMMITTED, node=node_id)
                found = {entry.index: entry.value async for entry in reading}
                assert found == expected, f"what {node_id} has is not what was acknowledged"
