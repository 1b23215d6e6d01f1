"""Beginning a log anew behind a point beyond its end. A crash at any moment leaves the old log or the new one.

In this order:

1. The small state of the new beginning is written, under the name of a segment that is not there yet.
2. A file for that segment is made. Its first page, synced, says that the log begins with it.
3. The file gets its name, and the directory is synced. This is the one step that counts.
4. Older segments go, now or at the next start.
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.disk.syncer import Handle
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.segment.segment import FIRST_PAGE_BYTES, STATE_SUFFIX, Segment, SegmentHeader
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.snapshot_file import write_state


class NewBeginning(NamedTuple):
    """What is ready on the disk and has no meaning yet."""

    header: SegmentHeader
    path: str
    handle: Handle


def prepare_beginning(files: SegmentFiles, state: LogSnapshot, size_bytes: int) -> NewBeginning:
    """Blocks. Raises OSError, and the log is what it was."""
    header = SegmentHeader(files.group, state.next_index, state.last)
    write_state(files.disk, str(files.directory / header.name.file(STATE_SUFFIX)), state.encode(), twice=True)
    path, handle = files.make(max(size_bytes, 2 * FIRST_PAGE_BYTES))
    return NewBeginning(header, path, handle)


def begin_anew(files: SegmentFiles, beginning: NewBeginning, commit_hint: int) -> Segment:
    """Makes it the log's first segment, durably. Blocks. Raises OSError: the log is then the old one or the new one."""
    header, path, handle = beginning
    segment = files.adopt(path, handle, header, commit_hint, durable=True, origin=True)
    files.disk.fsync_directory(str(files.directory))
    segment.has_state = True
    return segment
