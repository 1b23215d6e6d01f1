"""The log's sync marks: how far everything is durable, in the first page of the segment that holds that end.

``GroupCommit`` says when a mark is written, so the frame that a mark names is always covered by a completed sync. The
mark carries the point (position, term, chain). So a start can tell whether the frame there is the one that was synced.
"""

from __future__ import annotations

from dledger.common.types import LogPoint, Position
from dledger.disk.group_commit import Written
from dledger.log.segment.segment import Segment, write_mark
from dledger.log.segment.segment_files import SegmentFiles

LogEnd = Written[Segment, LogPoint]
"""The end of the log at some moment; ``sequence`` is the position of ``tag``, the newest frame's point."""


def log_end(segment: Segment, last: LogPoint, end_offset: int) -> LogEnd:
    """The log ends with the frame ``last``, which ends at ``end_offset`` of ``segment``."""
    return Written(segment, last.position, end_offset, last)


class SyncMarks:
    """Writes the marks of one log, and beside each the commit hint."""

    def __init__(self, files: SegmentFiles, commit_hint: Position) -> None:
        self._files = files
        self.commit_hint = commit_hint
        """A position that is known to be committed."""

    def write(self, end: LogEnd, *, clean: bool) -> None:
        """Writes that everything up to ``end`` is durable; the caller syncs. Raises OSError."""
        segment = end.file
        self._files.open(segment)
        write_mark(self._files.disk, segment, end.tag, end.end_offset, self.commit_hint, clean=clean)
