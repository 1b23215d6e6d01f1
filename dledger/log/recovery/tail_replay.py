"""Reading the end of a log again, from the last small state at hand: what recovery and TRUNCATE both do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dledger.common.errors import DLedgerError
from dledger.common.types import GENESIS, LogPoint, Member
from dledger.log.frame.frame import Frame
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.frame.scan import FrameScanner
from dledger.log.segment.index import SparseIndex
from dledger.log.segment.segment import Segment, corrupt
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.snapshot_file import read_state


class ReplayedSegment(NamedTuple):
    """What was found in one segment: the good frames before ``end_offset``, and why no more (empty: zeros follow)."""

    segment: Segment
    sparse_index: SparseIndex
    frames: int
    end_offset: int
    reason: str


class Replay:
    """The state after the last good frame at or before a position, and the segments read on the way.

    Blocks: for a worker thread. Changes no segment and no file, and opens those it reads for itself; segments that it
    has to read must not go meanwhile.
    """

    def __init__(self, files: SegmentFiles, ordinal: int, members: Sequence[Member], *, watch: int = 0) -> None:
        """Begins at segment ``ordinal``, or before it when its small state is not at hand. Raises CORRUPT_LOG when
        there is none at all. ``watch``: the point at this position is noted in ``watched``."""
        self._files = files
        self._watch = watch
        self.ordinal, self.state = _load_state(files, ordinal, members)
        """Of the segment it begins at."""
        self.watched: LogPoint | None = self.state.last if self.state.last.position == watch else None
        self.replayed: list[ReplayedSegment] = []

    @property
    def end(self) -> ReplayedSegment:
        """The segment of the last good frame, or the empty one behind it."""
        return self.replayed[-1]

    @property
    def frames(self) -> int:
        return sum(each.frames for each in self.replayed)

    def run(self, until: int | None = None) -> None:
        """Reads up to position ``until``, or to the first frame that is not good."""
        segments = self._files.segments
        for ordinal in range(self.ordinal, len(segments)):
            end = self._read(segments[ordinal], until)
            self.replayed.append(end)
            following = segments[ordinal + 1] if ordinal + 1 < len(segments) else None
            if following is None or following.previous != self.state.last:
                return
            if until is not None and until < following.name.base_position:
                return

    def _read(self, segment: Segment, until: int | None) -> ReplayedSegment:
        with self._files.reading(segment) as handle:
            return self._scan(segment, self._files.scanner(segment, handle), until)

    def _scan(self, segment: Segment, scanner: FrameScanner, until: int | None) -> ReplayedSegment:
        index = SparseIndex()
        end_offset, frames, reason = scanner.offset, 0, ""
        for offset, frame in scanner:
            if until is not None and frame.header.position > until:
                break
            try:
                self._apply(frame)
            except DLedgerError as bad:
                reason = str(bad)
                break
            index.add(frame, offset)
            end_offset = offset + frame.header.stored_bytes
            frames += 1
        return ReplayedSegment(segment, index, frames, end_offset, reason or scanner.reason)

    def _apply(self, frame: Frame) -> None:
        self.state.apply(frame)
        if frame.header.position == self._watch:
            self.watched = frame.header.point


def _load_state(files: SegmentFiles, ordinal: int, members: Sequence[Member]) -> tuple[int, LogSnapshot]:
    for at in range(ordinal, -1, -1):
        segment = files.segments[at]
        state = read_state(files.disk, segment, is_last=at == 0 and segment.previous != GENESIS)
        if state is not None:
            return at, state
        if segment.previous == GENESIS:
            return at, LogSnapshot(files.group, members)
    first = files.segments[0]
    raise corrupt(first.state_path, 0, "no small state is left to begin from")
