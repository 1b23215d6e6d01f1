"""A group as a program has it, as a state machine's log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Protocol

from dledger.common.types import Ack, Consistency, Entry
from dledger.statemachine.machine_log import LogRecord


class ProgramsLog(Protocol):
    """What ``dledger.connect`` gives, or ``dledger.Node.group``: as far as it matters here."""

    async def bounds(self, consistency: Consistency = ...) -> tuple[int, int]: ...

    def read(
        self, start: int = ..., *, follow: bool = ..., consistency: Consistency = ...
    ) -> AsyncGenerator[Entry, None]: ...

    async def append(self, record: bytes, *, expect_index: int | None = ...) -> Ack: ...


class ClientLog:
    """Reads all records committed as far as the node asked knows; ``commit_index`` is linearizable."""

    def __init__(self, log: ProgramsLog) -> None:
        self._log = log

    async def first_index(self) -> int:
        return (await self._log.bounds(Consistency.COMMITTED))[0]

    async def commit_index(self) -> int:
        return (await self._log.bounds())[1]

    async def read(self, start: int) -> AsyncIterator[Sequence[LogRecord]]:
        async with aclosing(self._log.read(start, follow=True, consistency=Consistency.COMMITTED)) as entries:
            async for entry in entries:
                yield (LogRecord(entry.index, entry.term, entry.value),)

    async def append(self, record: bytes) -> int:
        return (await self._log.append(record)).index

    async def append_at(self, record: bytes, index: int) -> None:
        """As ``append``, at that index. Raises WrongExpectedIndex, and nothing is appended, where it is another one."""
        await self._log.append(record, expect_index=index)
