"""The work after a roll, in the background, once the new segment is durable. It writes the new segment's small state
and the old one's footer, and frees the page cache of older segments.

None is needed for safety. A start that finds them missing reads more, and a full disk merely leaves them out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dledger.disk.disk import FULL
from dledger.log.segment.segment import Segment, seal
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.snapshot_file import write_state

logger = logging.getLogger(__name__)


class Roll(NamedTuple):
    """From one segment to the next. ``encode_state`` gives the small state between them; None when it is stored, or
    not known any more."""

    old: Segment
    new: Segment
    encode_state: Callable[[], bytes] | None


class Sealer:
    """Finishes rolls, oldest first. ``on_failure`` hears of any error but a full disk, ``on_sealed`` of every finished
    segment."""

    def __init__(
        self,
        files: SegmentFiles,
        on_failure: Callable[[OSError], None],
        page_cache_bytes: int = 1 << 62,
        on_sealed: Callable[[], None] | None = None,
        take_reserve: Callable[[], bool] = lambda: False,
    ) -> None:
        """``page_cache_bytes``: of what was written, so much more than the active segment stays in the page cache.
        ``take_reserve`` makes room for a small state on a full disk, once."""
        self._files = files
        self._on_failure = on_failure
        self._page_cache_bytes = page_cache_bytes
        self._on_sealed = on_sealed
        self._take_reserve = take_reserve
        self._cached: deque[Segment] = deque()
        self._rolls: deque[Roll] = deque()
        self._synced = 0
        self._current: Segment | None = None
        self._task: asyncio.Task[None] | None = None
        self._paused = False

    def rolled(self, roll: Roll) -> None:
        self._rolls.append(roll)

    def owes(self, segment: Segment) -> bool:
        """Whether the segment is still to be sealed, or about to be."""
        return segment is self._current or any(roll.old is segment for roll in self._rolls)

    def synced(self, position: int) -> None:
        """Everything up to ``position`` is durable, files and directory."""
        self._synced = position
        if self._task is None and self._has_work():
            name = f"seal-{self._files.group}"
            self._task = asyncio.get_running_loop().create_task(self._finish(), name=name)

    def _has_work(self) -> bool:
        return not self._paused and bool(self._rolls) and self._rolls[0].new.name.base_position <= self._synced

    def resume(self) -> None:
        """Rolls to segments that are gone are forgotten, and work may go on. Only after ``pause``."""
        self._paused = False
        self._rolls = deque(roll for roll in self._rolls if roll.new in self._files.segments)

    async def drain(self) -> None:
        """Waits until every roll that is durable is finished."""
        if self._task is not None:
            await self._task

    async def pause(self) -> None:
        """Waits for the work under way. No more is begun before ``resume``, even if more rolls complete meanwhile: a
        file that is being cut must not be sealed."""
        self._paused = True
        if self._task is not None:
            await self._task

    async def _finish(self) -> None:
        while self._has_work():
            roll = self._rolls.popleft()
            self._current = roll.old
            try:
                await self._seal(roll)
            except OSError as reason:
                logger.warning("a segment cannot be sealed", extra={"path": roll.old.path, "why": str(reason)})
                if reason.errno not in FULL:
                    self._on_failure(reason)
            self._current = None
            if self._on_sealed is not None:
                self._on_sealed()
        self._task = None

    async def _seal(self, roll: Roll) -> None:
        with self._files.pinned(roll.old):
            size_bytes = await self._files.disk.run(partial(self._store, roll))
        assert roll.old.index is not None
        roll.old.last_timestamp_ms = roll.old.index.last_timestamp_ms
        roll.old.size_bytes = size_bytes
        roll.old.sealed = True
        logger.debug("a segment is sealed", extra={"path": roll.old.path, "size_bytes": size_bytes})
        self._files.open(roll.old)  # now one of those that are closed again when many are open
        await self._drop_behind(roll.old)

    async def _drop_behind(self, sealed: Segment) -> None:
        """Lets the kernel reuse the pages of older segments for new ones. Fresh memory may have to be found and
        cleared. In a virtual machine it may have to be asked of the host, for every 4 KiB written."""
        self._cached.append(sealed)
        while sum(segment.size_bytes for segment in self._cached) > self._page_cache_bytes:
            oldest = self._cached.popleft()
            if oldest.gone:
                continue
            with self._files.pinned(oldest) as handle:
                await self._files.disk.run(partial(self._files.disk.drop_cache, handle))

    def _store(self, roll: Roll) -> int:
        assert roll.old.index is not None
        if roll.encode_state is not None:
            self._store_state(roll.new, roll.encode_state())
        return seal(self._files.disk, roll.old, roll.old.index, roll.new.name.base_index, roll.new.previous)

    def _store_state(self, segment: Segment, state: bytes) -> None:
        write = partial(write_state, self._files.disk, segment.state_path, state)
        try:
            try:
                write()
            except OSError as reason:
                if reason.errno not in FULL or not self._take_reserve():
                    raise
                write()
        except OSError as reason:
            if reason.errno not in FULL:
                raise
            # The segment does without: the log cannot be trimmed to begin there.
            logger.warning("a small state has no room", extra={"path": segment.state_path, "why": str(reason)})
        else:
            segment.has_state = True
