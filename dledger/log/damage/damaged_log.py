"""A log that cannot be opened yet: frames that a start has to read are damaged.

It knows which frames it lacks, which end it promised, and which frames it can still give to others. Nothing is appended
to it, and nothing is cut from it. Once repaired, it is closed, and opened as any log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from dledger.common.errors import Code, CorruptLog, DLedgerError, error
from dledger.common.types import LogPoint, Member, NodeId, Position, TrimPoint
from dledger.disk.disk import Disk
from dledger.disk.syncer import Handle
from dledger.log.cut import cut
from dledger.log.damage.damage_inspector import DamageInspector
from dledger.log.frame.frame import HEADER_BYTES, Frame, parse_header
from dledger.log.frame.log_snapshot import LogSnapshot, begins_later
from dledger.log.frame.scan import FrameScanner
from dledger.log.log_api import Damaged, DamagedRange, OnDamage
from dledger.log.recovery.inventory import Durable, take_inventory
from dledger.log.recovery.tail_replay import Replay
from dledger.log.segment.damage import Reach
from dledger.log.segment.frame_reader import FrameReader
from dledger.log.segment.segment import FIRST_PAGE_BYTES, Segment, corrupt
from dledger.log.segment.segment_files import SegmentFiles


class DamagedLog:
    """Made by ``open_damaged``. What it has of ``api.Log`` means the same here."""

    def __init__(
        self, files: SegmentFiles, state: LogSnapshot, last: LogPoint, commit_hint: int, members: Sequence[Member]
    ) -> None:
        self._members = members
        self.group = files.group
        self.state = state
        """The small state before the first damaged frame: members and the rest may be older than the log's end."""
        self.last = last
        """The end of the log that the node has promised: a candidate with less does not get its vote."""
        self.commit_hint = Position(commit_hint)
        self._files = files
        self._reader = FrameReader(files)
        self._inspector = DamageInspector(files)
        self._changing = asyncio.Lock()  # nothing is written back behind a cut

    @property
    def voters(self) -> tuple[NodeId, ...]:
        return ()  # what is damaged may have changed them

    def set_on_damage(self, on_damage: OnDamage) -> None:
        self._inspector.on_damage = on_damage

    def damaged(self) -> list[DamagedRange]:
        return self._files.damage.ranges()

    async def repair(self, damaged: DamagedRange, frames: Sequence[Frame]) -> None:
        async with self._changing:
            try:
                await self._inspector.repair(damaged, frames)
            except OSError as reason:
                raise _failed(self._files, reason) from reason

    async def read(self, first: Position, max_bytes: int) -> list[Frame]:
        """Good frames, also in front of, between and behind damaged ones. Raises as ``api.Log.read``; CORRUPT_LOG, not
        ``Damaged``, for what was not known to be damaged."""
        if first <= self.state.start.position:
            raise begins_later(f"position {first}", self.state)
        if first > self.last.position:
            return []
        try:
            return await self._reader.from_position(first, max_bytes)
        except OSError as reason:
            raise _failed(self._files, reason) from reason

    async def cut(self, after: Position) -> None:
        """Removes every frame behind position ``after``, durably: the log is to be closed, and opened, then. Everything
        before it must be good. Raises DISK_ERROR, and CORRUPT_LOG with nothing changed."""
        async with self._changing:
            try:
                await self._files.disk.run(partial(_cut, self._files, self._members, after, self.commit_hint))
            except OSError as reason:
                raise _failed(self._files, reason) from reason
            self._files.damage.end_at(after)

    async def close(self) -> None:
        async with self._changing:
            await self._reader.settle()
            self._files.close_all()


async def open_damaged(
    disk: Disk, directory: Path, group: str, *, members: Sequence[Member], why: CorruptLog
) -> DamagedLog:
    """The log that ``open_log`` refused to open because of ``why``, or that was closed because of ``Damaged``. Changes
    nothing. Raises ``why`` if the missing frames, or this node's promises, are not known: that is beyond repair. Raises
    DISK_ERROR if the disk fails."""
    files = SegmentFiles(disk, directory, group)
    try:
        return await disk.run(partial(_open, files, tuple(members), why))
    except OSError as reason:
        files.close_all()
        raise _failed(files, reason) from reason
    except BaseException:
        files.close_all()
        raise


def _failed(files: SegmentFiles, reason: OSError) -> DLedgerError:
    return error(Code.DISK_ERROR, f"{files.directory} fails ({reason.strerror}): see to the disk")


def _open(files: SegmentFiles, members: Sequence[Member], why: CorruptLog) -> DamagedLog:
    durable = take_inventory(files, files.disk.listdir(str(files.directory)))
    replay = Replay(files, durable.ordinal, members)
    first = replay.ordinal
    if isinstance(why, Damaged) and why.range.last >= files.segments[0].name.base_position:
        first = min(first, files.ordinal_of(why.range.last))
    replay.run()
    for at in range(first, durable.ordinal + 1):
        _look(files, at, durable)
    if not files.damage:
        raise why
    last = _follow_tail(files, durable)
    start = files.segments[0]
    state = replay.state
    state.begin_at(TrimPoint(start.previous, start.name.base_index))
    hint = max(min(durable.commit_hint, last.position), state.start.position)
    return DamagedLog(files, state, last, hint, members)


def _cut(files: SegmentFiles, members: Sequence[Member], after: Position, commit_hint: int) -> None:
    whole = SegmentFiles(files.disk, files.directory, files.group)
    try:
        take_inventory(whole, whole.disk.listdir(str(whole.directory)))
        replay = Replay(whole, whole.ordinal_of(after + 1), members)
        replay.run(after)
        end, last = replay.end, replay.state.last
        if last.position != after:
            raise corrupt(end.segment.path, end.end_offset, end.reason or "frames are missing")
        hint = min(commit_hint, after)
        cut(whole, end.segment, end.end_offset, last, unsynced=list(whole.segments), commit_hint=hint)
    finally:
        whole.close_all()


def _look(files: SegmentFiles, at: int, durable: Durable) -> None:
    """Finds what segment ``at`` lacks below the mark."""
    segment = files.segments[at]
    if at == durable.ordinal:
        reach = Reach(durable.offset, durable.point, None)
    else:
        reach = files.reach_of(segment, durable.point, 0)
    files.damage.found(segment, files.look(segment, reach))
    if at < durable.ordinal:
        with files.reading(segment) as handle:
            segment.index = files.load_index(segment, handle)


def _follow_tail(files: SegmentFiles, durable: Durable) -> LogPoint:
    """The last good frame behind the mark: it may have been acknowledged. What lies behind it is left out."""
    point, ordinal = durable.point, durable.ordinal
    segment, offset = files.segments[ordinal], durable.offset
    while True:
        with files.reading(segment) as handle:
            tail = _scan_tail(files, segment, offset, point, handle)
            point = tail.previous
            segment.end_offset = tail.offset
            segment.index, _ = files.index_around(segment, handle, tail.end_offset)
        following = files.after(segment)
        if following is None or following.previous != point:
            files.segments = files.segments[: ordinal + 1]
            return point
        segment, offset, ordinal = following, FIRST_PAGE_BYTES, ordinal + 1


def _scan_tail(files: SegmentFiles, segment: Segment, offset: int, point: LogPoint, handle: Handle) -> FrameScanner:
    """Past the good frames from ``offset`` on. Their first index follows from the first one alone: it may be the hole
    before that knows it, but the chain proves it."""
    read = files.reader_of(handle)
    next_index = segment.name.base_index
    with suppress(DLedgerError):
        next_index = parse_header(read(HEADER_BYTES, offset)).base_index
    tail = FrameScanner(read, offset, segment.size_bytes, point, next_index, path=segment.path)
    for _ in tail:
        pass
    tail.end_offset = tail.offset
    return tail
