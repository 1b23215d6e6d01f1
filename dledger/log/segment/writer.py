"""Placing frames in segments and writing them: all of a call's frames, or none."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.common.batch import Buffer
from dledger.common.config import MIB, Limits
from dledger.common.errors import DLedgerError
from dledger.common.types import LogPoint
from dledger.disk.disk import FULL
from dledger.disk.syncer import Handle
from dledger.log.frame.control import check_control
from dledger.log.frame.frame import Frame
from dledger.log.segment.preparer import Preparer
from dledger.log.segment.segment import FIRST_PAGE_BYTES, Segment, SegmentHeader, write_header, write_mark
from dledger.log.segment.segment_files import SegmentFiles

FIRST_SEGMENT_BYTES = 64 << 10
"""A log's first segment: a group that nobody writes to has no more than this."""
_QUICK_GROWTH_BYTES = 1 * MIB
"""Up to this size each segment is four times the one before, then twice, up to ``limits.segment_max_bytes``. So a log
that is written in bulk has large segments after a few rolls."""
_PREPARE_AFTER_BYTES = 16 << 10
"""No next segment is prepared before so much was written since the start, or a quarter of a smaller segment. Many logs
get a term's no-op and no more."""


def first_segment_bytes(limits: Limits) -> int:
    """The size of the smallest segment, with its first page."""
    return min(FIRST_SEGMENT_BYTES, limits.segment_max_bytes)


class Run:
    """Frames that go to one segment in one write."""

    __slots__ = ("buffers", "end_offset", "frames", "is_new", "offset", "offsets", "segment")

    def __init__(self, segment: Segment, *, is_new: bool) -> None:
        self.segment = segment
        self.is_new = is_new
        self.offset = segment.end_offset
        self.end_offset = segment.end_offset
        self.frames: list[Frame] = []
        self.offsets: list[int] = []
        self.buffers: list[Buffer] = []


class SegmentWriter:
    """Writes behind the end of the active segment, and begins the next one when it is full."""

    def __init__(self, files: SegmentFiles, preparer: Preparer, limits: Limits) -> None:
        self._files = files
        self._preparer = preparer
        self._limits = limits
        self._written_bytes = 0
        """Since the log was opened."""
        self._full: Segment | None = None
        """An active segment that is to get no frame more."""
        self._prepared_behind: Segment | None = None
        """The last active segment for which a successor was asked."""

    def write(self, frames: Sequence[Frame], last: LogPoint, next_index: int, commit_hint: int) -> list[Run]:
        """Writes ``frames``, which follow ``last``. Raises CORRUPT_LOG for a control frame that cannot be read, and
        OSError. None of the frames is kept then, unless ``undo`` fails: its error has the first one as its cause.

        The new segments are not among the log's yet.
        """
        runs: list[Run] = []
        try:
            self._place(frames, last, next_index, commit_hint, runs)
            for run in runs:
                handle = self._files.open(run.segment)
                self._files.disk.pwritev(handle, run.buffers, run.offset)
                self._written_bytes += run.end_offset - run.offset
        except (OSError, DLedgerError) as reason:
            self._undo(runs, reason)
            raise
        return runs

    def prepare_next(self) -> None:
        """Has the segment behind the active one made ready, once for each, if the log is being written to."""
        active = self._files.active
        if active is self._prepared_behind or self._written_bytes < min(_PREPARE_AFTER_BYTES, active.size_bytes // 4):
            return
        self._prepared_behind = active
        self._preparer.start(self._next_size_bytes(active.size_bytes))

    def roll(self) -> None:
        """The next frame goes to a new segment, unless the active one is empty."""
        if not self._files.active.is_empty:
            self._full = self._files.active

    def first_size_bytes(self) -> int:
        return first_segment_bytes(self._limits)

    def _place(
        self, frames: Sequence[Frame], last: LogPoint, next_index: int, commit_hint: int, runs: list[Run]
    ) -> None:
        if self._files.active.is_outdated and self._files.active.is_empty:
            self._renew(self._files.active, commit_hint)
        run = Run(self._files.active, is_new=False)
        runs.append(run)
        room, left = run.segment.size_bytes, self._limits.segment_max_frames - run.segment.frames
        offset, position, index = run.offset, int(last.position), next_index
        for frame in frames:
            header = frame.header
            position += 1
            assert (header.position, header.base_index) == (position, index), f"{frame} does not follow"
            if not header.count:
                check_control(frame)
            size_bytes = (header.frame_len + 7) & ~7
            if offset + size_bytes > room and offset == FIRST_PAGE_BYTES:
                # Nothing to roll away from: the next segment would have the same name.
                self._grow(run.segment, FIRST_PAGE_BYTES + size_bytes)
                room = run.segment.size_bytes
            is_full = run.segment is self._full and offset > FIRST_PAGE_BYTES
            if offset + size_bytes > room or not left or is_full or run.segment.is_outdated:
                run.end_offset = offset
                last = run.frames[-1].header.point if run.frames else last
                segment_header = SegmentHeader(self._files.group, index, last)
                run = Run(self._next_segment(run.segment, segment_header, size_bytes, commit_hint), is_new=True)
                runs.append(run)
                offset, room, left = run.offset, run.segment.size_bytes, self._limits.segment_max_frames
            run.frames.append(frame)
            run.offsets.append(offset)
            run.buffers += frame.buffers
            offset += size_bytes
            left -= 1
            index += header.count
        run.end_offset = offset

    def _renew(self, segment: Segment, commit_hint: int) -> None:
        """Gives an empty segment, which cannot be rolled away from, a header of this program's version, durably.

        The mark comes first: by it, a start after a crash knows that the segment was durable, and writes a torn header
        anew. Both are synced by handles of their own. An error of the device is told to each handle, and a group commit
        must hear of it too.
        """
        disk = self._files.disk
        self._files.open(segment)
        write_mark(disk, segment, segment.previous, FIRST_PAGE_BYTES, commit_hint, clean=False)
        handle = disk.open(segment.path)
        try:
            disk.fdatasync(handle)
        finally:
            disk.close(handle)
        write_header(disk, segment.path, SegmentHeader(self._files.group, segment.name.base_index, segment.previous))
        segment.is_outdated = False

    def _grow(self, segment: Segment, needed_bytes: int) -> None:
        size_bytes = max(needed_bytes, self.first_size_bytes())
        self._files.disk.fallocate(self._files.open(segment), 0, size_bytes)
        segment.size_bytes = size_bytes

    def _next_segment(self, old: Segment, header: SegmentHeader, frame_bytes: int, commit_hint: int) -> Segment:
        needed = FIRST_PAGE_BYTES + frame_bytes
        prepared = self._preparer.take(needed)
        if prepared is not None:
            path, handle = prepared.path, prepared.handle
        else:
            path, handle = self._make(needed, self._next_size_bytes(old.size_bytes))
        return self._files.adopt(path, handle, header, commit_hint)

    def _make(self, needed_bytes: int, wanted_bytes: int) -> tuple[str, Handle]:
        """Where there is no room for a segment as large as is wanted, one of the smallest size does."""
        least_bytes = max(needed_bytes, self.first_size_bytes())
        try:
            return self._files.make(max(needed_bytes, wanted_bytes))
        except OSError as reason:
            if reason.errno not in FULL or least_bytes >= wanted_bytes:
                raise
        return self._files.make(least_bytes)

    def _next_size_bytes(self, size_bytes: int) -> int:
        grown_bytes = max(2 * size_bytes, min(4 * size_bytes, _QUICK_GROWTH_BYTES))
        return min(max(grown_bytes, self.first_size_bytes()), self._limits.segment_max_bytes)

    def _undo(self, runs: list[Run], reason: Exception) -> None:
        # Durably, at once: a frame that was refused must not be there after a power cut.
        disk = self._files.disk
        try:
            for run in reversed(runs):
                if run.is_new:
                    self._files.remove(run.segment)
                elif run.end_offset > run.offset:
                    handle = self._files.open(run.segment)
                    disk.pwritev(handle, [bytes(run.end_offset - run.offset)], run.offset)
                    disk.fdatasync(handle)
        except OSError as worse:
            raise UndoFailedError(worse.errno, worse.strerror) from reason


class UndoFailedError(OSError):
    """A write failed, and what it left behind could not be taken back."""
