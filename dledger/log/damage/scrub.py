"""Scrub: reading every frame of a log again and again, a piece at a time, so that rot is found before it is needed.

Where a pass stands is kept beside the log, without a sync: after a restart it goes on with the segment it was at. The
file holds one record (record.py): u64 position of the frame to go on with | u64 wall clock in ms when the pass began.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import NamedTuple

from dledger.common.types import LogPoint, Position
from dledger.disk.disk import Disk
from dledger.disk.patient_reader import PatientReader
from dledger.disk.record import RecordKind, in_file, pack_record, unpack_record
from dledger.log.damage.damage_inspector import DamageInspector
from dledger.log.frame.scan import FrameScanner
from dledger.log.log_api import ScrubProgress
from dledger.log.segment.damage import Reach
from dledger.log.segment.segment import FIRST_PAGE_BYTES, TEMPORARY_SUFFIX, Segment
from dledger.log.segment.segment_files import SegmentFiles

STEP_BYTES = 256 << 10
"""About what one step reads: others have their turn in between."""
_STEP_FRAMES = 500
_FILE_NAME = "scrub"
_PROGRESS = Struct("<QQ")


class _Cursor(NamedTuple):
    """Where in a segment the next step begins."""

    segment: Segment
    offset: int
    previous: LogPoint
    next_index: int
    is_good: bool = True
    """False if no good frame begins there, though the segment goes on."""


class Scrub:
    """One log's. ``step`` is called one at a time, while no segment may leave the log."""

    def __init__(self, files: SegmentFiles, inspector: DamageInspector, reach: Callable[[Segment], Reach]) -> None:
        self._files = files
        self._inspector = inspector
        self._reach = reach
        self._cursor: _Cursor | None = None

    async def step(self, position: Position) -> Position:
        """Checks about ``STEP_BYTES`` of frames from ``position`` on, and has the inspector look at a segment where one
        is bad. Returns the position to go on with, in the same segment or at the start of the next. Raises OSError."""
        segment = self._files.by_position(position)
        cursor, reach = self._cursor, self._reach(segment)
        if cursor is None or cursor.segment is not segment or cursor.previous.position != position - 1:
            cursor = _Cursor(segment, FIRST_PAGE_BYTES, segment.previous, segment.name.base_index)
        cursor = self._cursor = await self._files.disk.run(partial(self._scan, cursor, reach))
        is_at_end = cursor.previous.position >= reach.point.position
        if not cursor.is_good or (is_at_end and cursor.previous != reach.point):
            await self._inspector.examine(segment, partial(self._reach, segment))
            return Position(reach.point.position + 1)
        return Position(cursor.previous.position + 1)

    def _scan(self, cursor: _Cursor, reach: Reach) -> _Cursor:
        segment, disk = cursor.segment, self._files.disk
        with self._files.reading(segment) as handle:
            if segment.sealed and cursor.offset == FIRST_PAGE_BYTES:
                disk.drop_cache(handle)  # what the device holds is to be seen
            end = disk.size(handle) if reach.offset is None else reach.offset
            scanner = FrameScanner(
                PatientReader(self._files.disk, handle),
                cursor.offset,
                end,
                cursor.previous,
                cursor.next_index,
                path=segment.path,
            )
            is_good = cursor.previous == reach.point or self._walk(scanner, reach)
            if segment.sealed:
                disk.drop_cache(handle, cursor.offset, scanner.offset - cursor.offset)
        return _Cursor(segment, scanner.offset, scanner.previous, scanner.next_index, is_good)

    def _walk(self, scanner: FrameScanner, reach: Reach) -> bool:
        """Up to the end of the step, or of the segment. Whether it got there."""
        begin = scanner.offset
        for frames, _ in enumerate(scanner, 1):
            is_at_end = scanner.previous.position >= reach.point.position
            if is_at_end or frames == _STEP_FRAMES or scanner.offset - begin >= STEP_BYTES:
                return True
        return False

    # Over a restart ----------------------------------------------------------------------------------------------

    def load(self) -> ScrubProgress | None:
        """Of the pass under way; None when it is not known. Blocks."""
        disk, path = self._files.disk, self._path
        if not disk.exists(path):
            return None
        handle = disk.open(path, read_only=True)
        try:
            with in_file(path):
                record = unpack_record(RecordKind.SCRUB, disk.pread(handle, disk.size(handle), 0))
        finally:
            disk.close(handle)
        if record is None or len(record.payload) != _PROGRESS.size:
            return None
        next_position, began_ms = _PROGRESS.unpack(record.payload)
        return ScrubProgress(Position(next_position), began_ms)

    def save(self, progress: ScrubProgress) -> None:
        """Blocks. Raises OSError."""
        disk, temporary = self._files.disk, self._path + TEMPORARY_SUFFIX
        _write(disk, temporary, pack_record(RecordKind.SCRUB, 0, _PROGRESS.pack(*progress)))
        disk.rename(temporary, self._path)

    @property
    def _path(self) -> str:
        return str(self._files.directory / _FILE_NAME)


def _write(disk: Disk, path: str, content: bytes) -> None:
    handle = disk.open(path, create=True)
    try:
        disk.ftruncate(handle, 0)
        disk.pwritev(handle, [content], 0)
    finally:
        disk.close(handle)
