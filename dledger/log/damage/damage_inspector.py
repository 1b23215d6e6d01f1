"""The log's answer to bad frames: it looks closer at the segment, remembers the missing frames, and takes them back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from dledger.common.types import Position, TrimPoint
from dledger.disk.disk import run_to_the_end
from dledger.log.damage.repair import left_of, place, write_back
from dledger.log.frame.frame import Frame
from dledger.log.log_api import DamagedRange, OnDamage
from dledger.log.segment.damage import Hole, Reach
from dledger.log.segment.segment import Segment
from dledger.log.segment.segment_files import SegmentFiles

logger = logging.getLogger(__name__)


class DamageInspector:
    """Its methods are called one at a time, while no segment may leave the log."""

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self.on_damage: OnDamage | None = None
        self.changes = 0
        """How often damage was found, frames were written back, or trimmed: what a read met before says nothing any
        more."""

    async def examine(self, segment: Segment, reach: Callable[[], Reach]) -> bool:
        """Reads all of ``segment`` again. Whether it lacks anything else than was known. Raises OSError."""
        files = self._files
        holes = await files.disk.run(partial(files.look, segment, reach()))
        known = files.damage.of(segment)
        if holes == known or segment.gone:
            return False
        for hole in holes:
            if hole not in known and files.damage.is_missed(hole):
                _tell(files.group, hole)
        self.changes += 1
        self._note(partial(files.damage.found, segment, holes))
        return True

    def begin_at(self, begin: TrimPoint) -> None:
        """The log begins there: what it lacks before is not missed."""
        self.changes += 1
        self._note(partial(self._files.damage.begin_at, begin))

    def end_at(self, position: Position) -> None:
        """The log ends there. Only for a position that is not damaged."""
        self._note(partial(self._files.damage.end_at, position))

    def _note(self, news: Callable[[], None]) -> None:
        before = self._files.damage.ranges()
        news()
        if self._files.damage.ranges() != before:
            self._changed()

    def _changed(self) -> None:
        if self.on_damage is not None:
            self.on_damage()

    async def repair(self, damaged: DamagedRange, frames: Sequence[Frame]) -> None:
        """Raises CORRUPT_LOG when ``frames`` are not what is lacking, and OSError."""
        files = self._files
        hole = files.damage.find(damaged)
        if hole is None:
            return  # trimmed, truncated, or repaired meanwhile
        offset = place(hole, files.damage.behind(hole), frames)
        try:
            await run_to_the_end(files.disk, partial(write_back, files.disk, hole, offset, frames))
        finally:
            self.changes += 1
        segment = hole.segment
        end_offset = offset + sum(frame.header.stored_bytes for frame in frames)
        segment.end_offset = max(segment.end_offset, end_offset)
        segment.size_bytes = max(segment.size_bytes, end_offset)  # its file may have been cut short
        others = [each for each in files.damage.of(segment) if each != hole]
        files.damage.found(segment, [*others, *left_of(hole, offset, frames[0])])
        try:
            await self._index_anew(segment)
        finally:
            self._changed()
        logger.warning(
            "damaged frames were repaired",
            extra={"group": files.group, "path": segment.path, "first": damaged.first, "last": damaged.last},
        )

    async def _index_anew(self, segment: Segment) -> None:
        """An index that was built around holes names no frame in them."""
        files = self._files
        if segment.sealed:
            segment.index = None  # its footer is read when it is needed
        elif segment is not files.active:
            with files.pinned(segment) as handle:
                segment.index = await files.disk.run(partial(files.build_index, segment, handle))


def _tell(group: str, hole: Hole) -> None:
    logger.error(
        "stored frames are damaged; they are not served, and will be repaired from the other nodes",
        extra={
            "group": group,
            "path": hole.segment.path,
            "offset": hole.offset,
            "first": hole.first,
            "last": hole.last,
        },
    )
