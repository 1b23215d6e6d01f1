"""Group commit: one fdatasync in flight, and what is written meanwhile rides on the next.

A group is everything written by the time its fdatasync begins. It covers all files with unsynced writes, oldest first,
and the directory if a file came into being. So a group across a roll counts as one.

An owner may keep a mark on the disk that says how far everything is durable (``WriteMark``). The mark of the last
completed group is written along with the next one if the last mark is a few milliseconds old. After some idling it is
written alone. So a mark never names what no completed sync covers.

The first error is final: after a failed fdatasync the kernel takes the pages for clean, and a second one would succeed
without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from dledger.common.config import Timings
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Durability
from dledger.disk.syncer import Handle, Syncer

File = TypeVar("File", bound=Hashable)
Tag = TypeVar("Tag")
Pinned_contra = TypeVar("Pinned_contra", contravariant=True)


class Written(NamedTuple, Generic[File, Tag]):
    """The end of the entries written at some moment: the newest entry's number, the file, and the offset at which it
    ends there."""

    file: File
    sequence: int
    end_offset: int
    tag: Tag
    """What the owner's mark says of this end besides."""


class PinnedFiles(Protocol[Pinned_contra]):
    """The owner's open files."""

    def pin(self, file: Pinned_contra) -> Handle:
        """The file's handle, which stays open until ``unpin``. Raises OSError."""
        ...

    def unpin(self, file: Pinned_contra) -> None: ...


class WriteMark(Protocol[File, Tag]):
    """Writes that everything up to ``end`` is durable, into ``end.file``, without a sync. ``clean``: the owner closes
    in order there. Raises OSError."""

    def __call__(self, end: Written[File, Tag], *, clean: bool) -> None: ...


class GroupCommit(Generic[File, Tag]):
    """Makes what was written durable, in order.

    Invariant: the entry ``durable`` was written and not taken back; the number falls with ``restarted`` alone.
    """

    def __init__(
        self,
        files: PinnedFiles[File],
        directory: str,
        *,
        syncer: Syncer,
        write_mark: WriteMark[File, Tag],
        durability: Durability,
        timings: Timings,
        end: Written[File, Tag],
        on_synced: Callable[[int], None],
    ) -> None:
        """``directory`` holds the files. ``end`` is durable and marked. ``on_synced`` is told of every completed sync,
        with any durability."""
        self._files = files
        self._directory = directory
        self._syncer = syncer
        self._write = write_mark
        self._durability = durability
        self._timings = timings
        self._on_synced = on_synced
        self._loop = asyncio.get_running_loop()
        self._end = end
        self._synced = end
        self._marked = end
        self._marked_s = 0.0
        self._dirty: dict[File, None] = {}
        self._directory_dirty = False
        self._in_flight = False
        self._generation = 0
        self._settled: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = end
        self._announcing = False
        self._restarting = False
        self.durable = end.sequence
        self.failure: DLedgerError | None = None
        self.on_durable: Callable[[int], None] | None = None
        self.on_failure: Callable[[DLedgerError], None] | None = None
        self.observe_sync_s: Callable[[float], None] | None = None
        self._started_s = 0.0

    def rolled(self) -> None:
        """A file came into being, or went: the next group covers the directory too."""
        self._directory_dirty = True

    def written(self, files: list[File], end: Written[File, Tag], *, after_turn: bool = False) -> None:
        """Entries were written to ``files``, up to ``end``. The sync begins now, or ``after_turn`` of the loop."""
        for file in files:
            self._dirty[file] = None
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
        """Inside, no sync is in flight and none begins; the completion of one that was is dropped. The caller may
        change files there. Then it makes all of them durable and marked, and says so with ``restarted``. An OSError is
        final, as any. After another error nothing may have changed: what was dropped is synced again."""
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

    def restarted(self, end: Written[File, Tag]) -> None:
        """Everything up to ``end``, where the files now end, is durable and marked. Only inside ``stopped``."""
        assert self._restarting, "syncs may be in flight"
        self._dirty.clear()
        self._directory_dirty = False
        self._end = self._synced = self._marked = end
        self.durable = min(self.durable, end.sequence)
        self._advance(end.sequence)

    @property
    def synced_sequence(self) -> int:
        """The last entry covered by a completed fdatasync. Without fsync, entries beyond it may already be called
        durable."""
        return self._synced.sequence

    def uses(self, file: File) -> bool:
        """Whether a later group may write a mark to the file, or sync it."""
        return file in self._dirty or file is self._synced.file

    @property
    def sync_age_s(self) -> float:
        """How long the fdatasync in flight has been under way; 0.0 when there is none."""
        return self._loop.time() - self._started_s if self._in_flight else 0.0

    def unsynced(self) -> list[File]:
        """Files with writes that no completed sync covers. Only inside ``stopped``."""
        assert not self._in_flight, "a sync is in flight"
        return list(self._dirty)

    async def close(self, *, in_order: bool = True) -> None:
        """Syncs what is left, and writes a clean mark if the close is ``in_order``. Does neither after a failure."""
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
        message = f"{self._directory} cannot be made durable ({reason.strerror}): see to the disk, then restart"
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
        # Without a sync now and then no owner would ever learn that a roll is durable.
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
        files = list(self._dirty)
        self._dirty.clear()
        handles = [self._files.pin(file) for file in files]
        directories = [self._directory] if self._directory_dirty else []
        self._directory_dirty = False
        self._in_flight = True
        self._started_s = self._loop.time()
        self._syncer.sync(handles, directories, partial(self._done, self._generation, self._end, files))

    def _owes_mark(self) -> bool:
        """Whether a mark is due with this group; always when nothing else is to be synced."""
        if self._marked is self._synced:
            return False
        age_s = self._loop.time() - self._marked_s
        return not self._dirty or age_s * 1000 >= self._timings.sync_mark_interval_ms

    def _write_mark(self, *, clean: bool) -> bool:
        mark = self._synced
        try:
            self._write(mark, clean=clean)
        except OSError as reason:
            self.fail(reason)
            return False
        self._marked = mark
        self._marked_s = self._loop.time()
        self._dirty[mark.file] = None
        return True

    def _done(self, generation: int, end: Written[File, Tag], files: list[File], reason: OSError | None) -> None:
        self._in_flight = False
        if self.observe_sync_s is not None:
            self.observe_sync_s(self._loop.time() - self._started_s)
        for file in files:
            self._files.unpin(file)
        if reason is not None:
            self.fail(reason)
        elif generation != self._generation:
            self._dirty.update(dict.fromkeys(files))
            self._directory_dirty = True
        elif self.failure is None:
            self._complete(end)
        if self._settled is not None and not self._in_flight:
            self._settled.set_result(None)
            self._settled = None

    def _complete(self, end: Written[File, Tag]) -> None:
        if end.sequence != self._synced.sequence:
            self._synced = end
        waiting = bool(self._dirty)
        if waiting and self._settled is None and self._syncs_at_once():
            self._start()  # before anybody is told: the disk works on meanwhile
        elif waiting and self._durability is Durability.INTERVAL:
            self._arm(self._timings.sync_interval_ms)
        elif self._marked is not self._synced:
            self._arm(self._timings.sync_mark_idle_ms)
        self._advance(end.sequence)
        self._on_synced(end.sequence)

    def _advance(self, sequence: int) -> None:
        if sequence > self.durable:
            self.durable = sequence
            if self.on_durable is not None:
                self.on_durable(sequence)

    def _announce(self) -> None:
        if not self._announcing:
            self._announcing = True
            self._loop.call_soon(self._announced)

    def _announced(self) -> None:
        self._announcing = False
        if self.failure is None and not self._restarting:
            self._advance(self._end.sequence)

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
