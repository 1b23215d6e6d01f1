"""A log in memory, and state machines on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from random import Random

from dledger.common.errors import Code, error
from dledger.statemachine.api import Refused, StateMachine
from dledger.statemachine.machine_log import LogRecord
from dledger.statemachine.runner import Runner


class Counter(StateMachine):
    def __init__(self) -> None:
        self.value = 0

    def apply(self, command: bytes) -> int:
        if int(command) < 0:
            raise Refused("it only counts up")
        self.value += int(command)
        return self.value

    def checkpoint(self) -> Iterator[bytes]:
        return iter([b"%d" % self.value])

    async def restore(self, parts: AsyncIterator[bytes]) -> None:
        self.value = int(b"".join([part async for part in parts]))


class MemoryMachineLog:
    """Commits at once. ``trim`` takes records from its beginning."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.first = 0
        self.term = 1
        self._grown = asyncio.Event()

    async def first_index(self) -> int:
        return self.first

    async def commit_index(self) -> int:
        return len(self.records) - 1

    async def read(self, start: int) -> AsyncIterator[Sequence[LogRecord]]:
        at = start
        while True:
            if at < self.first:
                raise error(Code.INDEX_OUT_OF_RANGE, f"record {at} was trimmed", first_index=self.first)
            while at < len(self.records):
                yield [self.records[at]]
                at += 1
            grown = self._grown
            await grown.wait()

    async def append(self, record: bytes) -> int:
        index = len(self.records)
        self.records.append(LogRecord(index, self.term, record))
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()
        await asyncio.sleep(0)
        return index

    def trim(self, before: int) -> None:
        self.first = before


class Running:
    """``async with``: a runner that runs."""

    def __init__(self, log: MemoryMachineLog, make: type[Counter] = Counter, seed: int = 1) -> None:
        self.runner = Runner(log, make, random=Random(seed))

    async def __aenter__(self) -> Runner[Counter]:
        self.task = asyncio.create_task(self.runner.run())
        return self.runner

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def applied(runner: Runner[Counter], log: MemoryMachineLog) -> int:
    """The state when all of the log is in it."""
    async with asyncio.timeout(5):
        await runner.wait_applied(len(log.records) - 1)
    return runner.machine.value
