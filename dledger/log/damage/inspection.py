"""Something in a segment did not match: all of the segment is looked at, once, however many came upon it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from dledger.common.errors import CorruptLog, DLedgerError
from dledger.common.futures import retrieve
from dledger.log.damage.damage_inspector import DamageInspector
from dledger.log.log_api import Damaged
from dledger.log.log_rewrite_lock import LogRewriteLock
from dledger.log.segment.damage import Hole, Reach
from dledger.log.segment.segment import Segment, Unreadable
from dledger.log.segment.segment_files import SegmentFiles


class Inspection:
    def __init__(
        self,
        files: SegmentFiles,
        inspector: DamageInspector,
        rewrite_lock: LogRewriteLock,
        reach: Callable[[Segment], Reach],
        refuse: Callable[[DLedgerError], DLedgerError],
    ) -> None:
        """``refuse`` ends the log, and returns what to raise."""
        self._files = files
        self._inspector = inspector
        self._rewrite_lock = rewrite_lock
        self._reach = reach
        self._refuse = refuse
        self._under_way: dict[str, asyncio.Task[None]] = {}  # by the segment's path

    @property
    def changes(self) -> int:
        """As the inspector's."""
        return self._inspector.changes

    async def look_into(self, failure: CorruptLog, changes: int, *, is_again: bool) -> None:
        """Examines the segment in which a read met ``failure``. ``changes`` is the inspector's count before that read.
        ``is_again``: the read before failed in the same way.

        Returns when the read should be tried again. Then more damage is known now, or something changed, or only memory
        was wrong and the device has the right bytes. Raises ``Damaged`` if the damage was known already. Raises
        DISK_ERROR if the device goes on failing although no frame is damaged. Raises ``failure`` if no frame explains
        it; that ends this log.
        """
        if isinstance(failure, Damaged):
            if changes != self.changes:
                return  # it may be good again, or trimmed
            raise failure
        segment = self._files.by_path(failure.metadata.get("file", ""))
        if segment is None:
            if changes != self.changes:
                return  # it was trimmed
            raise self._refuse(failure)
        under_way = self._under_way.get(segment.path)
        if under_way is not None:
            await asyncio.wait([under_way])
            return
        work = self._examine(segment, self._rewrite_lock.generation, changes, failure, is_again=is_again)
        under_way = self._under_way[segment.path] = asyncio.get_running_loop().create_task(work, name="examine")
        under_way.add_done_callback(partial(self._examined, segment.path))
        # All frames of a segment are read. A reader that gives up must not end the examination, and the next reader
        # must not begin it again. Else nothing would ever be found.
        await asyncio.shield(under_way)

    async def _examine(
        self, segment: Segment, generation: int, changes: int, failure: CorruptLog, *, is_again: bool
    ) -> None:
        async with self._rewrite_lock.lock:
            if segment.gone or (generation, changes) != (self._rewrite_lock.generation, self.changes):
                return
            known = self._hole_at(segment, int(failure.metadata["offset"]))
            if known is not None:
                raise self._files.damage.refusal(known) from failure
            try:
                if await self._inspector.examine(segment, partial(self._reach, segment)):
                    return
            except OSError as reason:
                raise self._files.unreadable(reason) from reason
            if changes == self.changes and is_again:
                if isinstance(failure, Unreadable):
                    raise self._files.unreadable(failure.reason) from failure
                raise self._refuse(failure)

    def _hole_at(self, segment: Segment, offset: int) -> Hole | None:
        def is_there(hole: Hole) -> bool:
            return hole.offset <= offset and (hole.end_offset is None or offset < hole.end_offset)

        return next(filter(is_there, self._files.damage.of(segment)), None)

    def _examined(self, path: str, task: asyncio.Task[None]) -> None:
        del self._under_way[path]
        retrieve(task)  # told to those that wait, if anybody still does

    async def settle(self) -> None:
        """Returns when nothing is looked into any more."""
        if self._under_way:
            await asyncio.wait(self._under_way.values())
