"""Group commit: one fdatasync in flight, and what is written meanwhile rides on the next.

A group is everything written when its fdatasync begins. It covers all files with unsynced writes, oldest first, and the
directory when a segment came into being, so a group across a roll counts as one. The sync mark of the last completed
group is written along with the next one when the last mark is a few milliseconds old, or alone after some idling.

The first error is final: after a failed fdatasync the kernel takes the pages for clean, and a second one would succeed
without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from dledger.common.config import Timings
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Durability, LogPoint, Position
from dledger.disk.syncer import Syncer
from dledger.log.log_api import ObserveSync, OnDurable, OnFailure
from dledger.log.segment.segment import Segment, write_mark
from dledger.log.segment.segment_files import SegmentFiles


class Written(NamedTuple):
    """The end of the log at some moment: a frame, and where it ends."""

    segment: Segment
    point: LogPoint
    end_offset: int


class GroupCommit:
    """Makes what was written durable, in order.

    Invariant: the frame of ``durable`` is in the log; it falls with ``restarted`` alone.
    """

    def __init__(
        self,
        files: SegmentFiles,
        *,
        syncer: Syncer,
        durability: Durability,
        timings: Timings,
        end: Written,
        on_synced: Callable[[Position], None],
    ) -> None:
        """``end`` is durable and marked. ``on_synced`` is told of every completed sync, whatever the durability."""
        self._files = files
        self._syncer = syncer
        self._durability = durability
        self._timings = timings
        self._on_synced = on_synced
        self._loop = asyncio.get_running_loop()
        self._end = end
        self._synced = end
        self._marked = end
        self._marked_s = 0.0
        self._dirty: dict[Segment, None] = {}
        self._directory_dirty = False
        self._in_flight = False
        self._generation = 0
        self._settled: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = end
        self._announcing = False
        self._restarting = False
        self.commit_hint = Position(0)
        self.durable: Position = end.point.position
        self.failure: DLedgerError | None = None
        self.on_durable: OnDurable | None = None
        self.on_failure: OnFailure | None = None
        self.observe_sync_s: ObserveSync | None = None
        self._started_s = 0.0

    def rolled(self) -> None:
        """A segment came into being, or went: the next group covers the directory too."""
        self._directory_dirty = True

    def written(self, segments: list[Segment], end: Written, *, after_turn: bool = False) -> None:
        """Frames were written to ``segments``, up to ``end``. The sync begins now, or ``after_turn`` of the loop."""
        for segment in segments:
            self._dirty[segment] = None
        self._end = end
        if self._durability is Durability.FSYNC:
            if after_turn:
                self._loop.call_soon(self._start_if_idle)
            else:
                self._start_if_idle()
            return
        self._announce()
        if self._durability is Durability.INTERVAL:
            self._arm(self._timings.sync_interval_ms)
        elif self._syncs_at_once() and not self._in_flight:
            self._start()

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Inside, no sync is in flight and none begins; the completion of one that was is dropped. Who changes files
        there leaves all of them durable and marked, and says so with ``restarted``. An OSError is final, as any; after
        another error, with nothing changed, what was dropped is synced again."""
        self._generation += 1
        self._restarting = True
        try:
            await self._settle()
            self._raise_failure()
            yield
        except OSError as reason:
            raise self.fail(reason) from reason
        finally:
            self._restarting = False
            self._start_if_idle()

    def restarted(self, end: Written) -> None:
        """Everything up to ``end``, where the log now ends, is durable and marked. Only inside ``stopped``."""
        assert self._restarting, "syncs may be in flight"
        self._dirty.clear()
        self._directory_dirty = False
        self._end = self._synced = self._marked = end
        self.durable = min(self.durable, end.point.position)
        self._advance(end.point.position)

    @property
    def synced_position(self) -> Position:
        """Up to where an fdatasync has completed: without fsync less than what was told as durable."""
        return self._synced.point.position

    def uses(self, segment: Segment) -> bool:
        """Whether a later group may write to, or sync, the segment."""
        return segment in self._dirty or segment is self._synced.segment

    @property
    def sync_age_s(self) -> float:
        """How long the fdatasync in flight has been under way; 0.0 when there is none."""
        return self._loop.time() - self._started_s if self._in_flight else 0.0

    def unsynced(self) -> list[Segment]:
        """Segments with writes that no completed sync covers. Only inside ``stopped``."""
        assert not self._in_flight, "a sync is in flight"
        return list(self._dirty)

    async def close(self, *, in_order: bool = True) -> None:
        """Syncs what is left and marks the log as closed if that is ``in_order``. Does neither after a failure."""
        await self._settle()
        if self.failure is None:
            self._start()
            await self._settle()
        if self.failure is None and in_order and self._write_mark(clean=True):
            self._start()
            await self._settle()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._syncer.close()

    def fail(self, reason: OSError) -> DLedgerError:
        """Nothing is durable from now on. Told once; returns the error that everything is refused with."""
        message = f"{self._files.directory} cannot be made durable ({reason.strerror}): see to the disk, then restart"
        return self.refuse(error(Code.DISK_ERROR, message))

    def refuse(self, failure: DLedgerError) -> DLedgerError:
        """As ``fail``, with the error at hand."""
        if self.failure is None:
            self.failure = failure
            if self.on_failure is not None:
                self._loop.call_soon(self.on_failure, failure)
        return self.failure

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _syncs_at_once(self) -> bool:
        # Without a sync now and then no segment would ever be sealed.
        fsync, rolled = self._durability is Durability.FSYNC, self._directory_dirty
        return fsync or (rolled and self._durability is Durability.NONE)

    def _start_if_idle(self) -> None:
        if not self._in_flight and not self._restarting and self._dirty:
            self._start()

    def _start(self) -> None:
        if self.failure is not None:
            return
        if self._owes_mark() and not self._write_mark(clean=False):
            return
        if not self._dirty:
            return
        segments = list(self._dirty)
        self._dirty.clear()
        handles = []
        for segment in segments:
            handles.append(self._files.open(segment))
            segment.pins += 1
        directories = [str(self._files.directory)] if self._directory_dirty else []
        self._directory_dirty = False
        self._in_flight = True
        self._started_s = self._loop.time()
        self._syncer.sync(handles, directories, partial(self._done, self._generation, self._end, segments))

    def _owes_mark(self) -> bool:
        """Whether a mark is due with this group; always when nothing else is to be synced."""
        if self._marked is self._synced:
            return False
        age_s = self._loop.time() - self._marked_s
        return not self._dirty or age_s * 1000 >= self._timings.sync_mark_interval_ms

    def _write_mark(self, *, clean: bool) -> bool:
        mark = self._synced
        try:
            self._files.open(mark.segment)
            write_mark(self._files.disk, mark.segment, mark.point, mark.end_offset, self.commit_hint, clean=clean)
        except OSError as reason:
            self.fail(reason)
            return False
        self._marked = mark
        self._marked_s = self._loop.time()
        self._dirty[mark.segment] = None
        return True

    def _done(self, generation: int, end: Written, segments: list[Segment], reason: OSError | None) -> None:
        self._in_flight = False
        if self.observe_sync_s is not None:
            self.observe_sync_s(self._loop.time() - self._started_s)
        for segment in segments:
            self._files.unpin(segment)
        if reason is not None:
            self.fail(reason)
        elif generation != self._generation:
            self._dirty.update(dict.fromkeys(segments))
            self._directory_dirty = True
        elif self.failure is None:
            self._complete(end)
        if self._settled is not None and not self._in_flight:
            self._settled.set_result(None)
            self._settled = None

    def _complete(self, end: Written) -> None:
        if end.point != self._synced.point:
            self._synced = end
        waiting = bool(self._dirty)
        if waiting and self._settled is None and self._syncs_at_once():
            self._start()  # before anybody is told: the disk works on meanwhile
        elif waiting and self._durability is Durability.INTERVAL:
            self._arm(self._timings.sync_interval_ms)
        elif self._marked is not self._synced:
            self._arm(self._timings.sync_mark_idle_ms)
        self._advance(end.point.position)
        self._on_synced(end.point.position)

    def _advance(self, position: Position) -> None:
        if position > self.durable:
            self.durable = position
            if self.on_durable is not None:
                self.on_durable(position)

    def _announce(self) -> None:
        if not self._announcing:
            self._announcing = True
            self._loop.call_soon(self._announced)

    def _announced(self) -> None:
        self._announcing = False
        if self.failure is None and not self._restarting:
            self._advance(self._end.point.position)

    def _arm(self, delay_ms: float) -> None:
        if self._timer is None:
            self._armed_at = self._synced
            self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._in_flight or self._restarting:
            return  # its completion arms the timer again
        if self._durability is Durability.FSYNC and self._armed_at is not self._synced:
            self._arm(self._timings.sync_mark_idle_ms)  # not idle: groups went by since
        else:
            self._start()

    async def _settle(self) -> None:
        """Waits until no sync is in flight; none is begun by a completion meanwhile."""
        while self._in_flight:
            if self._settled is None:
                self._settled = self._loop.create_future()
            await asyncio.shield(self._settled)
