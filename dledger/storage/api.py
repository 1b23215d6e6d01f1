"""What the rest asks of a log. ``FileLog`` (log.py) and ``MemoryLog`` (memory.py) are the two that exist.

Threads: everything here is called from, and calls back on, one event loop. Blocking work happens in the disk's own
worker threads, behind the ``Disk`` that was handed in (disk.py), so that a simulation can replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dledger.errors import DLedgerError
from dledger.storage.frame import Frame
from dledger.storage.log_state import LogState
from dledger.types import Index, LogPoint, Position, Term

OnDurable = Callable[[Position], None]
"""Told, after every completed group commit, the position up to which the log is durable by its durability's rules."""

OnFailure = Callable[[DLedgerError], None]
"""Told once, of the first failed fdatasync (DISK_ERROR) or of rot (CORRUPT_LOG). Nothing is durable from then on."""


ObserveSync = Callable[[float], None]
"""Told how long each fdatasync took, in seconds."""


class Log(Protocol):
    """A segmented, checksummed, append-only sequence of frames.

    Invariants: positions are dense from ``state.start.position`` + 1 to ``last.position``; every frame links to the one
    before it; ``durable_position`` <= ``last.position`` and falls only with ``truncate``.
    """

    group: str

    @property
    def state(self) -> LogState:
        """The log's own small state after ``last``: members, producers, terms, start. Not to be changed by others."""
        ...

    @property
    def last(self) -> LogPoint:
        """The last frame, durable or not; ``state.start`` when there is none."""
        ...

    @property
    def durable_position(self) -> Position: ...

    @property
    def commit_hint(self) -> Position:
        """The highest commit position this node is known to have had; survives a restart, may lag behind."""
        ...

    def set_callbacks(
        self, on_durable: OnDurable, on_failure: OnFailure, observe_sync_s: ObserveSync | None = None
    ) -> None:
        """Must be called once before the first append."""
        ...

    def append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        """Writes the frames behind the last one (``pwritev``) and starts, or joins, a group commit: at once, or after
        this turn of the loop, for a leader whose pushes are to leave first.

        The caller has verified them (checksums, links). When it returns, they are readable and may be sent on; they are
        durable when ``on_durable`` says so. Raises DISK_FULL or DISK_ERROR, and then nothing of ``frames`` is kept.
        """
        ...

    async def truncate(self, after: Position) -> None:
        """Removes every frame behind position ``after``, durably, before it returns.

        Completions of group commits begun earlier are dropped. Never called at or below a committed position. No other
        method may be called until it returned.
        """
        ...

    def cached(self, first: Position, max_bytes: int) -> list[Frame] | None:
        """Consecutive frames from ``first`` on if the tail cache has ``first``: at least one, about ``max_bytes``."""
        ...

    async def read(self, first: Position, max_bytes: int) -> list[Frame]:
        """Consecutive frames from ``first`` on, checksums verified: at least one, about ``max_bytes``.

        Empty when ``first`` lies behind the last frame. Raises INDEX_LESS_THAN_LOCAL_BEGIN below the log's start and
        CORRUPT_LOG when what is stored does not match.
        """
        ...

    async def frame_of(self, index: Index) -> Frame:
        """The frame of record ``index``. Raises INDEX_OUT_OF_RANGE, INDEX_LESS_THAN_LOCAL_BEGIN, CORRUPT_LOG."""
        ...

    async def point_at(self, position: Position) -> LogPoint:
        """(position, term, chain) of a frame between ``state.start.position`` and ``last.position``, both included."""
        ...

    def term_at(self, position: Position) -> Term:
        """Its term, from memory alone."""
        ...

    def set_commit_hint(self, position: Position) -> None:
        """Remembers the commit position; written along with later groups, never with an fsync of its own."""
        ...

    async def close(self) -> None:
        """Completes the group commit in flight, writes the mark, releases the files."""
        ...
