"""A disk that forgets, fails, fills up and hangs, as the node of one life sees it.

::

    SimDisk (one life of a node)  ──▶  Platter (all its lives, platter.py)
      handles, latencies, errors         files: what reads see, what the medium holds, which sectors differ
      a trap at the nth operation        names: what reads see, and the changes no directory sync covers yet
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from dledger.common.batch import Buffer
from dledger.disk.syncer import Handle, OnSynced
from tests.simulation.platter import Captured, Platter, SimFile

Result = TypeVar("Result")

NORMAL_S = 0.0001, 0.002
"""An fdatasync takes something in between, unless the disk is slow."""
LATE_S = 0.1
"""A completion that takes longer is called late."""


@dataclass(slots=True)
class Trap:
    """Springs at the ``countdown``-th operation of its kind."""

    countdown: int
    spring: Callable[[], None]
    """What happens then; after it the operation fails with EIO. Of a write some of the first bytes may be there."""


@dataclass(slots=True)
class DiskMood:
    """How the disk behaves now; the nemesis changes it."""

    sync_s: tuple[float, float] = NORMAL_S
    """An fdatasync takes something in between."""
    fails_next_sync: bool = False
    is_hung: bool = False
    trap: Trap | None = None
    """For operations that change something."""
    read_trap: Trap | None = None

    def mend(self) -> None:
        self.sync_s = NORMAL_S
        self.fails_next_sync = self.is_hung = False
        self.trap = self.read_trap = None


class SimDisk:
    """One life's view of a platter: a ``Disk``. After ``cut_power`` nothing is answered any more."""

    def __init__(
        self,
        platter: Platter,
        mood: DiskMood,
        boot_id: str,
        *,
        world: asyncio.AbstractEventLoop | None = None,
        hit: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``world``: by whose clock the device works, whatever the process does; by default the running loop's."""
        self._platter = platter
        self._mood = mood
        self._boot_id = boot_id
        self._world = world
        self._hit = hit
        self._open: dict[int, SimFile] = {}
        self._next_handle = 3
        self._locked: dict[int, str] = {}
        self._paths: dict[int, str] = {}
        self._begun = 0
        self._under_way: dict[int, bool] = {}
        """By number, and whether it is a sync; other jobs may be those of a start, whose order means nothing."""
        self._jobs: dict[int, Callable[[], None]] = {}
        """By number: does it, and tells who waits for it, if anybody does."""
        self.failures: set[int] = set()
        """What it answered in this life, by errno: what a node may say failed."""
        self.least_free_bytes = 1 << 62
        """That it told anybody in this life."""
        self.is_dead = False

    def cut_power(self) -> None:
        self.is_dead = True

    def _check(self) -> None:
        if self.is_dead:
            raise OSError(errno.EIO, "the power is gone")

    def _change(self, begin: Callable[[], None] = lambda: None) -> None:
        """Before every operation that changes something. ``begin``: what one that fails has done of it."""
        self._check()
        trap = self._mood.trap
        if trap is not None and self._is_reached(trap):
            begin()
            self._mood.trap = None
            trap.spring()
            raise self._failed(errno.EIO)

    @staticmethod
    def _is_reached(trap: Trap) -> bool:
        trap.countdown -= 1
        return trap.countdown <= 0

    def _failed(self, number: int) -> OSError:
        self.failures.add(number)
        return OSError(number, os.strerror(number))

    @contextmanager
    def _claiming(self) -> Iterator[None]:
        """Around what may find no room."""
        try:
            yield
        except OSError as full:
            raise self._failed(full.errno or 0) from full

    def file(self, handle: Handle) -> SimFile:
        self._check()
        return self._open[handle]

    # Primitives --------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> Handle:
        del read_only
        self._check()
        if create and not self._platter.exists(path):
            self._change()
            file = self._platter.create(path)
        elif exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        else:
            file = self._platter.find(path)
        handle = self._next_handle
        self._next_handle += 1
        self._open[handle] = file
        self._paths[handle] = path
        return Handle(handle)

    def close(self, handle: Handle) -> None:
        self._open.pop(handle, None)
        path = self._locked.pop(handle, None)
        if path is not None and not self.is_dead:
            self._platter.locks.discard(path)

    def size(self, handle: Handle) -> int:
        return len(self.file(handle).data)

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        file = self.file(handle)
        trap = self._mood.read_trap
        if trap is not None and self._is_reached(trap):
            self._mood.read_trap = None
            trap.spring()
            raise self._failed(errno.EIO)
        if file.unreadable and file.is_unreadable(offset, offset + size_bytes):
            raise self._failed(errno.EIO)
        return bytes(file.data[offset : offset + size_bytes])

    def pread_cached(self, handle: Handle, size_bytes: int, offset: int) -> bytes | None:
        if self.file(handle).is_unreadable(offset, offset + size_bytes):
            return None
        data = self.pread(handle, size_bytes, offset)
        if self._platter.random.random() < 0.3:
            return None
        return data if len(data) == size_bytes else None

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        file, data = self.file(handle), b"".join(buffers)
        self._change(lambda: self._write(file, data[: self._platter.random.randrange(len(data) + 1)], offset))
        was_unreadable = len(file.unreadable)
        self._write(file, data, offset)
        if len(file.unreadable) < was_unreadable:
            self._hit("branch unreadable page written anew")

    def _write(self, file: SimFile, data: bytes, offset: int) -> None:
        with self._claiming():
            self._platter.write(file, data, offset)

    def fdatasync(self, handle: Handle) -> None:
        file = self.file(handle)
        self.sync_file(file, file.capture())

    def sync_file(self, file: SimFile, sectors: Captured) -> None:
        """``sectors`` were dirty when the sync began. Raises EIO when the mood is so: they look clean, and are lost."""
        self._change()
        file.settle(sectors)
        if self._mood.fails_next_sync:
            self._mood.fails_next_sync = False
            file.lost.update(number for number, (at, piece) in sectors.items() if piece and file.written[number] == at)
            self._hit("fault failed fdatasync")
            raise self._failed(errno.EIO)
        file.sync(sectors)

    def fsync_directory(self, path: str) -> None:
        self._change()
        self._platter.sync_directory(path)

    def fallocate(self, handle: Handle, offset: int, size_bytes: int) -> None:
        self._change()
        file = self.file(handle)
        if offset + size_bytes > len(file.data):
            with self._claiming():
                self._platter.resize(file, offset + size_bytes)

    def ftruncate(self, handle: Handle, size_bytes: int) -> None:
        self._change()
        with self._claiming():
            self._platter.resize(self.file(handle), size_bytes)

    def rename(self, source: str, target: str) -> None:
        self._change()
        self._platter.rename(source, target)

    def unlink(self, path: str) -> None:
        self._change()
        self._platter.unlink(path)

    def rmdir(self, path: str) -> None:
        self._change()
        self._platter.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        self._check()
        return self._platter.listdir(path)

    def mkdir(self, path: str) -> None:
        self._change()
        self._platter.mkdir(path)

    def exists(self, path: str) -> bool:
        self._check()
        return self._platter.exists(path)

    def lock(self, handle: Handle) -> bool:
        self._check()
        path = self._paths[handle]
        if path in self._platter.locks:
            return False
        self._platter.locks.add(path)
        self._locked[handle] = path
        return True

    def drop_cache(self, handle: Handle, offset: int = 0, size_bytes: int = 0) -> None:
        file = self.file(handle)
        if not (offset or size_bytes):  # a range may lie within one large folio, and those are dropped whole or not
            self._platter.drop_cache(file)

    def read_ahead(self, handle: Handle, offset: int, size_bytes: int) -> None:
        del offset, size_bytes
        self.file(handle)

    def process_id(self) -> int:
        return 1

    def boot_id(self) -> str:
        return self._boot_id

    def free_bytes(self, path: str) -> int:
        del path
        free_bytes = max(0, self._platter.capacity_bytes - self._platter.used_bytes)
        self.least_free_bytes = min(self.least_free_bytes, free_bytes)
        return free_bytes

    # Off the loop ------------------------------------------------------------------------------------------------

    def syncer(self) -> SimSyncer:
        return SimSyncer(self, self._world or asyncio.get_running_loop())

    async def run(self, job: Callable[[], Result]) -> Result:
        """Jobs overlap, and end in any order. A caller that is cancelled stops none: a thread goes on with it."""
        ticket, loop = self.begin(), asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()

        def work() -> None:
            try:
                result = job()
            except Exception as failure:  # noqa: BLE001 – it is the caller's, while there is one
                if not answer.done():
                    answer.set_exception(failure)
            else:
                if not answer.done():
                    answer.set_result(result)

        self._jobs[ticket] = work
        loop.call_later(self.delay_s(), self._try, ticket, answer)
        return await answer

    async def run_urgent(self, job: Callable[[], Result]) -> Result:
        return await self.run(job)  # no job waits for another here

    def _try(self, ticket: int, answer: asyncio.Future[Result]) -> None:
        if self.is_dead:
            answer.cancel()  # whoever waits for a dead machine's thread is gone himself
        elif self._mood.is_hung:
            answer.get_loop().call_later(0.05, self._try, ticket, answer)
        elif ticket in self._jobs:
            self._do(ticket)

    def _do(self, ticket: int) -> None:
        self.end(ticket)
        self._jobs.pop(ticket)()

    @property
    def is_hung(self) -> bool:
        return self._mood.is_hung

    def delay_s(self) -> float:
        return self._platter.random.uniform(*self._mood.sync_s)

    def begin(self, *, is_sync: bool = False) -> int:
        self._begun += 1
        self._under_way[self._begun] = is_sync
        return self._begun

    def end(self, ticket: int) -> None:
        is_sync = self._under_way.pop(ticket)
        if any(is_sync or other_is for other, other_is in self._under_way.items() if other < ticket):
            self._hit("fault completion out of order")

    def was_late(self) -> None:
        self._hit("fault late completion")

    def shutdown(self) -> None:
        """Waits for what threads have begun."""
        for ticket in list(self._jobs):
            self._do(ticket)


class SimSyncer:
    """Completes late, and covers what was written before it began; what was written meanwhile is left to chance.

    The device works by the world's clock, also while the process stands still.
    """

    def __init__(self, disk: SimDisk, world: asyncio.AbstractEventLoop) -> None:
        self._disk = disk
        self._world = world
        self._process = asyncio.get_running_loop()

    def sync(self, handles: Sequence[Handle], directories: Sequence[str], on_done: OnSynced) -> None:
        files = [self._disk.file(handle) for handle in handles]
        begun = [(file, file.capture()) for file in files]
        delay_s = self._disk.delay_s()
        ticket = self._disk.begin(is_sync=True)
        begun_s = self._world.time()
        self._world.call_later(delay_s, self._complete, begun, directories, on_done, ticket, begun_s)

    def _complete(
        self,
        begun: list[tuple[SimFile, Captured]],
        directories: Sequence[str],
        on_done: OnSynced,
        ticket: int,
        begun_s: float,
    ) -> None:
        disk = self._disk
        if disk.is_dead:
            return
        if disk.is_hung:
            self._world.call_later(0.05, self._complete, begun, directories, on_done, ticket, begun_s)
            return
        disk.end(ticket)
        if self._world.time() - begun_s > LATE_S:
            disk.was_late()
        failure = None
        try:
            for file, sectors in begun:
                disk.sync_file(file, sectors)
            for directory in directories:
                disk.fsync_directory(directory)
        except OSError as reason:
            failure = reason
        if not disk.is_dead:
            self._process.call_soon(on_done, failure)

    def close(self) -> None:
        """Nothing to release."""
