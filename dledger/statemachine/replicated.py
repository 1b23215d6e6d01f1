"""A replicated state machine of your own, on a log of a cluster.

::

    async with dledger.connect("127.0.0.1:20912") as log, dledger.replicate(log, Counter) as counter:
        print(await counter.submit(b"3"))
        await counter.barrier()
        print(counter.machine.value)

Every program that does so on the same log comes to the same state. The log must hold nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Generic, Self

from dledger.common.batch import as_record
from dledger.common.errors import WrongExpectedIndex
from dledger.statemachine.client_log import ClientLog, ProgramsLog
from dledger.statemachine.runner import Machine, Runner

MAX_ATTEMPTS = 50
"""At the BEGIN and the END of a checkpoint, while others append: each waits until it is level again."""


class Replicated(Generic[Machine]):
    """For ``async with``: the state machine follows the log until then. ``make`` gives the state before the first
    record: mostly the class of the state machine."""

    def __init__(self, log: ProgramsLog, make: Callable[[], Machine]) -> None:
        self._log = ClientLog(log)
        self._runner = Runner(self._log, make, random=Random())  # seeded by the operating system
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._runner.run(), name="dledger-state-machine")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (failure := self._task.exception()) is not None:
            raise failure

    @property
    def machine(self) -> Machine:
        """As of ``applied_index``. Change it by ``submit`` alone."""
        return self._runner.machine

    @property
    def applied_index(self) -> int:
        """Of the last record that is in the state; −1 before the first."""
        return self._runner.applied_index

    async def submit(self, command: bytes) -> Any:
        """What ``apply`` returned for it, once it is committed and applied here. Raises Refused when the state machine
        refuses it, OutcomeUnknown when it may be carried out yet. Raises UNEXPECTED_ARGUMENT for what is not bytes, and
        the errors of an append when it surely was not appended."""
        return await self._runner.submit(as_record(command))

    async def barrier(self) -> None:
        """Returns when everything that was committed before the call is in the state: reading it is linearizable."""
        await self._runner.barrier()

    async def checkpoint(self) -> int:
        """Writes the state into the log, and returns the index at which that began. A start then reads the log from
        there, once the records before are trimmed. Nothing is trimmed by itself. Raises the errors of an append: the
        checkpoint is incomplete then, and everybody ignores it."""
        return await self._runner.checkpoint(append=self._append_level)

    async def _append_level(self, record: bytes) -> int:
        """Appends the record right behind the records applied here. So a program that lags, or was away, writes no
        BEGIN and no END. Raises WrongExpectedIndex when others append all the while."""
        for _ in range(MAX_ATTEMPTS - 1):
            index = self._runner.applied_index + 1
            try:
                await self._log.append_at(record, index)
            except WrongExpectedIndex as ahead:
                await self._runner.wait_applied(ahead.next_index - 1)
            else:
                return index
        index = self._runner.applied_index + 1
        await self._log.append_at(record, index)
        return index


def replicate(log: ProgramsLog, make: Callable[[], Machine]) -> Replicated[Machine]:
    """``make``'s state machine on ``log``, for ``async with``."""
    return Replicated(log, make)
