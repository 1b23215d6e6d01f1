"""Restoring a state machine from a checkpoint of its log. The log is read twice: to find one, then its parts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from dledger.common.errors import Code, error
from dledger.statemachine.api import StateMachine
from dledger.statemachine.applier import Applier, joined_digest
from dledger.statemachine.finder import Checkpoint, CheckpointFinder
from dledger.statemachine.machine_log import MachineLog
from dledger.statemachine.records import Head, Part, decode
from dledger.statemachine.sessions import Sessions

logger = logging.getLogger(__name__)


class Restored(NamedTuple):
    """A state as of a checkpoint's BEGIN, ready to be applied to."""

    applier: Applier
    found: Checkpoint


async def restore(
    log: MachineLog, make: Callable[[], StateMachine], finder: CheckpointFinder, start: int, name: str
) -> Restored:
    """Restores from a checkpoint at record ``start`` or later: the first that ``finder`` lets count and that gives its
    digest. Waits for one if there is none yet: a follower may still be behind. Raises the errors of ``log``."""
    while True:
        found = await _find(log, finder, start)
        machine, reading = make(), _Reading()
        await machine.restore(_parts(log, machine, found, reading))
        head = b"".join(reading.heads)
        if joined_digest(head, reading.digest) == found.digest:
            logger.info("restored from a checkpoint", extra={"machine": name, "checkpoint": found.id})
            return Restored(Applier(machine, found.id + 1, Sessions.decode(head)), found)
        logger.error("a checkpoint is not what it says", extra={"machine": name, "checkpoint": found.id})
        start = found.end_index + 1


class _Reading:
    """What was read of one checkpoint."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.digest = b""
        """Of the state machine's own parts."""


async def _find(log: MachineLog, finder: CheckpointFinder, start: int) -> Checkpoint:
    async for records in log.read(start):
        for record in records:
            found = finder.feed(record.index, record.value)
            if found is not None:
                return found
    raise error(Code.CORRUPT_LOG, "the log ended while a checkpoint was looked for")


async def _parts(log: MachineLog, machine: StateMachine, found: Checkpoint, reading: _Reading) -> AsyncIterator[bytes]:
    async for records in log.read(found.id):
        for record in records:
            if record.index >= found.end_index:
                return
            match decode(record.index, record.value):
                case Part(id, _, data) if id == found.id:
                    reading.digest = machine.fold(reading.digest, data)
                    yield data
                case Head(id, _, data) if id == found.id:
                    reading.heads.append(data)
                case _:
                    pass
