"""A group of this node's own, as a state machine's log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from dledger.common.errors import Code, CorruptLog, error
from dledger.common.types import Consistency
from dledger.group.replica import Replica
from dledger.statemachine.machine_log import LogRecord


class LocalLog:
    """``replica`` gives the group's present replica, and raises an error that passes while there is none."""

    def __init__(self, replica: Callable[[], Replica]) -> None:
        self._replica = replica

    async def first_index(self) -> int:
        return self._replica().log.state.first_index

    async def commit_index(self) -> int:
        """Raises NOT_LEADER on other nodes than the leader, LEADER_NOT_READY before its state machine has caught up."""
        self._replica().machine.check_serving()
        return (await self._replica().reader.read_point(Consistency.LINEARIZABLE)).commit_index

    async def read(self, start: int) -> AsyncIterator[Sequence[LogRecord]]:
        """Raises LEADER_NOT_READY if the log is damaged, or was closed for that. It is being repaired, or the group has
        failed on this node and says so itself."""
        reader = self._replica().reader
        point = await reader.read_point(Consistency.COMMITTED)
        try:
            async for frames, _ in reader.read(start, None, point, follow=True):
                for frame in frames:
                    term = frame.header.term
                    base = frame.header.base_index
                    records = [LogRecord(index, term, value) for index, value in enumerate(frame.values(), base)]
                    yield records[start - base :] if start > base else records
        except CorruptLog as damage:
            raise error(Code.LEADER_NOT_READY, f"the log is being repaired on this node: {damage}") from damage

    async def append(self, record: bytes) -> int:
        """Raises NOT_LEADER on other nodes than the leader, LEADER_NOT_READY before its state machine has caught up."""
        replica = self._replica()
        replica.machine.check_serving()
        return (await replica.appender.append_records([record])).base_index
