"""A group of a cluster elsewhere, as a state machine's log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from dledger.client import Log
from dledger.common.types import Consistency
from dledger.statemachine.machine_log import LogRecord


class ClientLog:
    """Reads all records committed as far as the node asked knows; ``commit_index`` is linearizable."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def first_index(self) -> int:
        return (await self._log.bounds(Consistency.COMMITTED))[0]

    async def commit_index(self) -> int:
        return (await self._log.bounds())[1]

    async def read(self, start: int) -> AsyncIterator[LogRecord]:
        async with aclosing(self._log.read(start, follow=True, consistency=Consistency.COMMITTED)) as entries:
            async for entry in entries:
                yield LogRecord(entry.index, entry.term, entry.value)

    async def append(self, record: bytes) -> int:
        return (await self._log.append(record)).index

    async def append_at(self, record: bytes, index: int) -> None:
        """As ``append``, at that index. Raises WrongExpectedIndex, and nothing is appended, where it is another one."""
        await self._log.append(record, expect_index=index)
