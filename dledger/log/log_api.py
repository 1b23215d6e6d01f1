"""What the rest asks of a log. ``FileLog`` (file_log.py) and ``MemoryLog`` (testing) are the two that exist.

Threads: everything here is called from, and calls back on, one event loop. Blocking work happens in the disk's own
worker threads, behind the ``Disk`` handed in (disk.py). So a simulation can replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from dledger.common.errors import CorruptLog, DLedgerError
from dledger.common.types import Entry, Index, LogPoint, NodeId, Position, Term, TrimPoint
from dledger.log.frame.frame import Frame
from dledger.log.frame.log_snapshot import LogSnapshot

OnDurable = Callable[[Position], None]
"""Told, after every completed group commit, the position up to which the log is durable by its durability's rules."""

OnFailure = Callable[[DLedgerError], None]
"""Told once, of the first failed fdatasync (DISK_ERROR) or of rot (CORRUPT_LOG). Nothing is durable from then on."""

OnDamage = Callable[[], None]
"""Told whenever ``Log.damaged`` has changed."""

ObserveSync = Callable[[float], None]
"""Told how long each fdatasync took, in seconds."""


class DamagedRange(NamedTuple):
    """Frames of a log that cannot be read, by position. ``previous`` is the point before them."""

    first: Position
    last: Position
    previous: LogPoint

    @property
    def frames(self) -> int:
        return self.last - self.previous.position


class Damaged(CorruptLog):
    """What was asked for is known to be damaged: the other nodes may have it, and this one will when it is repaired."""

    def __init__(self, message: str, damaged: DamagedRange) -> None:
        super().__init__(message)
        self.range = damaged


class Boundary(NamedTuple):
    """Where a log may be trimmed: between two segments, all before durable."""

    trim: TrimPoint
    last_timestamp_ms: int
    """Timestamp of the newest frame before this boundary. May be rounded up, never down, so retention never trims a
    record too early."""
    size_bytes: int
    """What a trim to here takes from the disk, counted from the log's present start."""


class SegmentSpan(NamedTuple):
    """Which records one segment holds."""

    base_index: int
    end_index: int
    """One past the last."""
    size_bytes: int
    """What its frames take."""
    last_timestamp_ms: int
    """Of its newest frame."""


class ScrubProgress(NamedTuple):
    """Where a pass over the whole log stands."""

    next_position: Position
    began_ms: int
    """By the wall clock."""


class Log(Protocol):
    """A segmented, checksummed, append-only sequence of frames.

    Invariants: positions are dense from ``state.start.position`` + 1 to ``last.position``; every frame links to the one
    before it; ``durable_position`` <= ``last.position`` and falls only with ``truncate``.
    """

    group: str

    @property
    def state(self) -> LogSnapshot:
        """The log's own small state after ``last``: members, producers, terms, start. Not to be changed by others."""
        ...

    @property
    def last(self) -> LogPoint:
        """The last frame, durable or not; ``state.start`` when there is none."""
        ...

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """As of ``last``."""
        ...

    @property
    def durable_position(self) -> Position: ...

    @property
    def commit_hint(self) -> Position:
        """The highest commit position this node is known to have had; survives a restart, may lag behind."""
        ...

    def set_callbacks(
        self,
        on_durable: OnDurable,
        on_failure: OnFailure,
        observe_sync_s: ObserveSync | None = None,
        on_damage: OnDamage | None = None,
    ) -> None:
        """Must be called once before the first append."""
        ...

    @property
    def failure(self) -> DLedgerError | None:
        """Why nothing becomes durable any more, if so. ``on_failure`` is told a turn of the loop later."""
        ...

    def append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        """Writes the frames behind the last one (``pwritev``) and starts, or joins, a group commit.

        With ``sync_after_turn`` the group commit starts after this turn of the loop, so that a leader's pushes leave
        first. The caller has verified the frames (checksums, links). When ``append`` returns, they can be read and sent
        on. They are durable when ``on_durable`` says so. Raises DISK_FULL or DISK_ERROR, and then nothing of ``frames``
        is kept; and TERM_CHANGED if it is unknown whether something was kept.
        """
        ...

    def roll(self) -> None:
        """The next frame appended begins a new segment, so the log can be trimmed to the place right before it."""
        ...

    async def truncate(self, after: Position) -> None:
        """Removes every frame behind position ``after``, durably, before it returns.

        Completions of group commits begun earlier are dropped. Never called at or below a committed position. No other
        method may be called until it returned.
        """
        ...

    async def trim(self, to: TrimPoint) -> None:
        """Forgets everything up to ``to.point``, a committed frame: the log's ``start`` from now on, wherever the
        segments lie. Those wholly below it leave the disk in the background, each when its last reader is done.

        Does nothing when the log begins there or later. Raises CORRUPT_LOG when the log holds another frame there.
        After a restart the log begins where its first segment does: it may be told to trim again. May be called
        while anything else goes on.
        """
        ...

    async def reset(self, log_state: bytes) -> None:
        """Drops all frames, durably. The log goes on behind the point at which ``log_state`` ends, with the state in
        it: another node's ``state_at_start``.

        The same rules hold as for ``truncate``. Raises CORRUPT_LOG, and nothing has changed, when ``log_state`` cannot
        be read, is of another group, or does not end behind ``last``.
        """
        ...

    async def state_at_start(self) -> bytes:
        """The small state (``LogSnapshot.encode``) at ``state.start``, before the first frame kept."""
        ...

    def boundaries(self) -> list[Boundary]:
        """The points to which the log may be trimmed, ascending. The segment that is written to now always stays."""
        ...

    def segments(self) -> list[SegmentSpan]:
        """How the records are cut into segments, ascending, without those that hold none."""
        ...

    @property
    def size_bytes(self) -> int:
        """The room of all segments on the disk, reserved room included."""
        ...

    @property
    def kept_bytes(self) -> int:
        """The room of the log's segments on the disk, without segments that a trim has taken out and that still lie
        there."""
        ...

    @property
    def sync_age_s(self) -> float:
        """How long the fdatasync in flight has been under way; 0.0 when there is none."""
        ...

    def cached(self, first: Position, max_bytes: int) -> list[Frame] | None:
        """Consecutive frames from ``first`` on if the tail cache has ``first``: as many as ``read`` gives."""
        ...

    async def read(self, first: Position, max_bytes: int) -> list[Frame]:
        """Consecutive frames from ``first`` on, checksums verified: at least one, about ``max_bytes``,
        at most ``MAX_FRAMES_READ``.

        Empty when ``first`` lies behind the last frame. Raises INDEX_LESS_THAN_LOCAL_BEGIN below the log's start and
        ``Damaged``, a CORRUPT_LOG, when what is stored at ``first`` does not match: it is one of ``damaged`` then.
        """
        ...

    def get_cached(self, index: Index) -> Entry | None:
        """Record ``index`` where nothing has to be waited for. None: ``frame_of`` has it, or says why nobody has."""
        ...

    async def prefetch(self, indexes: Sequence[Index]) -> dict[int, Entry]:
        """Reads records ahead. Returns those that could be read cheaply, many at a time, from the device. For the
        others, the pages that ``frame_of`` needs are usually in the page cache afterwards. Raises nothing: ``frame_of``
        raises for records that cannot be read."""
        ...

    async def frame_of(self, index: Index) -> Frame:
        """The frame of record ``index``. Raises INDEX_OUT_OF_RANGE, INDEX_LESS_THAN_LOCAL_BEGIN, CORRUPT_LOG."""
        ...

    async def point_at(self, position: Position) -> LogPoint:
        """(position, term, chain) of a frame between ``state.start.position`` and ``last.position``, both included.
        Raises INDEX_LESS_THAN_LOCAL_BEGIN below."""
        ...

    def term_at(self, position: Position) -> Term:
        """Its term, from memory alone. Raises INDEX_LESS_THAN_LOCAL_BEGIN below the log's start."""
        ...

    def damaged(self) -> list[DamagedRange]:
        """Which frames are known to be damaged, ascending: they are not read, and are to be repaired."""
        ...

    async def repair(self, damaged: DamagedRange, frames: Sequence[Frame]) -> None:
        """Writes ``frames``, another node's, back where they belong, durably. Does nothing when ``damaged`` is not
        damaged any more.

        Raises CORRUPT_LOG when they are not what was written there (nothing is changed then), and DISK_ERROR.
        """
        ...

    async def scrub(self, position: Position) -> Position:
        """Checks a piece of the stored log, from ``position`` on, as the device has it. Bad frames are among
        ``damaged`` then. Returns the position to go on with, beyond ``last`` when nothing is left. Raises DISK_ERROR.
        """
        ...

    async def scrub_progress(self) -> ScrubProgress | None:
        """What was kept last, by this start or an earlier one; None: nothing."""
        ...

    async def keep_scrub_progress(self, progress: ScrubProgress) -> None:
        """Raises DISK_FULL and DISK_ERROR."""
        ...

    def set_commit_hint(self, position: Position) -> None:
        """Remembers the commit position; written along with later groups, never with an fsync of its own."""
        ...

    async def close(self) -> None:
        """Completes the group commit in flight, writes the mark, releases the files."""
        ...
