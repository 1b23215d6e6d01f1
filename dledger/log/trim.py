"""Removing the beginning of a log while everything else goes on; a crash at any moment leaves a log that opens.

In this order:

1. The small state that the log is to begin with gets a second copy: afterwards nothing else tells it.
2. The segment's first page says, durably, that the log begins with this segment (its origin).
3. Older segments leave the log, and their files go.

A start ignores and removes all segments before the last one that has an origin.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from dledger.common.errors import CorruptLog
from dledger.common.types import Member, Position, TrimPoint
from dledger.disk.disk import FULL, Disk
from dledger.log.log_api import Boundary
from dledger.log.log_rewrite_lock import LogRewriteLock
from dledger.log.recovery.tail_replay import Replay
from dledger.log.segment.segment import Segment, corrupt, write_origin
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.snapshot_file import keep_twice, write_state

logger = logging.getLogger(__name__)


class Collector:
    """Takes segments that lie wholly below the log's start off the disk."""

    def __init__(
        self,
        files: SegmentFiles,
        rewrite_lock: LogRewriteLock,
        start: Callable[[], Position],
        in_use: Callable[[Segment], bool],
        on_failure: Callable[[OSError], None],
        *,
        members: Sequence[Member],
    ) -> None:
        """``start``: of the log, as it is now. ``in_use``: whether somebody must find the segment in the log.
        ``on_failure`` hears of an error that is not a full disk. ``members``: those of the first start's configuration.
        """
        self._files = files
        self._rewrite_lock = rewrite_lock
        self._start = start
        self._in_use = in_use
        self._on_failure = on_failure
        self._members = members
        self._under_way: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begins to remove, in the background, segments below the log's start that nobody uses. To be called after a
        trim, and when such a segment is not in use any more."""
        if self._under_way is None and self._new_first() > 0:
            name = f"collect-{self._files.group}"
            self._under_way = asyncio.get_running_loop().create_task(self._collect_all(), name=name)

    async def settle(self) -> None:
        """Returns when nothing leaves the disk any more. A caller that is cancelled does not stop it."""
        if self._under_way is not None:
            await asyncio.shield(self._under_way)

    async def _collect_all(self) -> None:
        try:
            async with self._rewrite_lock.lock:
                while await self._collect():
                    pass  # meanwhile more may have been trimmed, or sealed
        finally:
            self._under_way = None

    def boundaries(self) -> list[Boundary]:
        """Between two segments, of which nobody needs the older one and the log can begin with the newer one."""
        found = []
        start, size_bytes = self._start(), 0
        for old, new in pairwise(self._files.segments):
            if self._in_use(old):
                break
            if new.previous.position <= start:
                continue  # it is on its way off the disk
            size_bytes += old.size_bytes
            if new.has_state:
                to = TrimPoint(new.previous, new.name.base_index)
                found.append(Boundary(to, old.newest_timestamp_ms, size_bytes))
        return found

    async def _collect(self) -> bool:
        """The segments below the start go, but for those in use, and those that the log needs to know its state there.
        Returns whether any went."""
        files, disk = self._files, self._files.disk
        try:
            first = self._new_first()
            while first and not await disk.run(partial(_tells_its_state, files, files.segments[first], self._members)):
                files.segments[first].has_state = False
                first = self._new_first()
            if not first:
                return False
            await disk.run(partial(write_origin, disk, files.segments[first]))
            removed = files.begin_with(first)
            await disk.run(partial(unlink_all, disk, str(files.directory), removed))
            await disk.run(partial(keep_twice, disk, files.segments[0]))  # there may be room now
        except OSError as reason:
            logger.warning("segments cannot be removed", extra={"group": files.group, "why": str(reason)})
            if reason.errno not in FULL:
                self._on_failure(reason)
            return False
        return True

    def _new_first(self) -> int:
        """The number of the segment to begin with: the last one possible."""
        start, first = self._start(), 0
        for at, segment in enumerate(self._files.segments):
            if segment.previous.position > start:
                break
            if segment.has_state:
                first = at
            if self._in_use(segment):
                break
        return first


def _tells_its_state(files: SegmentFiles, segment: Segment, members: Sequence[Member]) -> bool:
    """Sees to it that a small state lies beside the segment, twice if there is room. Older frames tell it as long as
    they are good, and they are about to go. Returns whether there is any. Blocks. Raises OSError."""
    if keep_twice(files.disk, segment):
        return True
    try:
        derived = encode_start(files, TrimPoint(segment.previous, segment.name.base_index), members)
    except (CorruptLog, OSError) as bad:
        if isinstance(bad, OSError) and bad.errno != errno.EIO:
            raise
        logger.warning("a small state cannot be derived", extra={"path": segment.state_path, "why": str(bad)})
        return False
    try:
        write_state(files.disk, segment.state_path, derived)
    except OSError as reason:
        if reason.errno not in FULL:
            raise
        return False
    return keep_twice(files.disk, segment)


def encode_start(files: SegmentFiles, begin: TrimPoint, members: Sequence[Member]) -> bytes:
    """The small state of a log that begins at ``begin``, read again from the one beside its first segment. Blocks;
    raises CORRUPT_LOG. ``members``: those of the first start's configuration."""
    replay = Replay(files, files.ordinal_of(begin.point.position + 1), members)
    replay.run(begin.point.position)
    if replay.state.last != begin.point:
        raise corrupt(replay.end.segment.path, replay.end.end_offset, replay.end.reason or "frames are missing")
    replay.state.begin_at(begin)
    return replay.state.encode()


def unlink_all(disk: Disk, directory: str, segments: list[Segment]) -> None:
    """Oldest first. Blocks; durable when it returns."""
    for segment in segments:
        for path in (segment.path, segment.state_path):
            with contextlib.suppress(FileNotFoundError):  # no small state, or removed by hand
                disk.unlink(path)
    disk.fsync_directory(directory)
