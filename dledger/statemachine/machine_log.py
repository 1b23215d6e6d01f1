"""What a state machine asks of its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol


class LogRecord(NamedTuple):
    """A committed record."""

    index: int  # type: ignore[assignment]  # a field, not tuple.index
    term: int
    value: bytes


class LeadersLog(Protocol):
    """What only a group's leader can do. All calls may raise what a client's or a node's raise."""

    async def commit_index(self) -> int:
        """Of the last record committed by the time of the call, or a later one; −1 when there is none."""
        ...

    async def append(self, record: bytes) -> int:
        """The index of the record, once it is committed. Raises OutcomeUnknown when it may have been or be yet."""
        ...


class MachineLog(LeadersLog, Protocol):
    """A group's log, as far as a state machine needs it. All calls may raise what a client's or a node's raise."""

    async def first_index(self) -> int:
        """Of the first record that the log still has."""
        ...

    def read(self, start: int) -> AsyncIterator[Sequence[LogRecord]]:
        """Committed records from ``start`` on, in order and for ever: those that are there, then those that come.
        Raises OutOfRange if they were trimmed."""
        ...
