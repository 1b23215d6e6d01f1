"""A disk that forgets: what was not synced survives a power cut sector by sector, as chance will have it.

::

    SimDisk (one life of a node)  ──▶  Platter (all its lives)
      handles, latencies, errors         files: what reads see, what the medium holds, which sectors differ
                                         names: what reads see, and the changes no directory sync covers yet

What a real disk may do, this one does: unsynced sectors persist independently of each other, at any time; a size and a
name may be there before the bytes, and the other way round; a failed fdatasync leaves pages that look clean and never
reached the medium; a full disk refuses; a hung one does not answer.
"""

# Paths are names as the operating system takes them, and their directories are looked up by the hundred thousand:
# ruff: noqa: PTH119, PTH120
from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from dledger.batch import Buffer
from dledger.storage.syncer import Handle, OnSynced

Result = TypeVar("Result")

SECTOR_BYTES = 512


Captured = dict[int, tuple[int, bytes]]
"""Sectors as they were: by number, which write and its bytes."""


@dataclass(eq=False, slots=True)
class SimFile:
    """``data`` is what reads see, ``medium`` what a power cut leaves of it."""

    data: bytearray = field(default_factory=bytearray)
    medium: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    """Sectors that were written and not synced."""
    lost: set[int] = field(default_factory=set)
    """Sectors that look clean, and whose write failed: gone as soon as the cache is dropped."""
    written: dict[int, int] = field(default_factory=dict)
    """How often each sector was written."""
    reached: dict[int, int] = field(default_factory=dict)
    """Which of those writes the medium holds."""

    def capture(self) -> Captured:
        """What a sync that begins now has to make durable."""
        return {number: self._sector(number) for number in sorted(self.dirty)}

    def _sector(self, number: int) -> tuple[int, bytes]:
        begin = number * SECTOR_BYTES
        return self.written[number], bytes(self.data[begin : begin + SECTOR_BYTES])

    def persist(self, sectors: Captured) -> None:
        """The medium holds ``sectors`` from now on, or what was written to them since and is there already."""
        for number, (version, piece) in sectors.items():
            if version < self.reached.get(number, 0):
                continue
            self.reached[number] = version
            begin = number * SECTOR_BYTES
            if len(self.medium) < begin + len(piece):
                self.medium.extend(bytes(begin + len(piece) - len(self.medium)))
            self.medium[begin : begin + len(piece)] = piece

    def settle(self, sectors: Captured) -> None:
        """They are clean, unless they were written again meanwhile."""
        self.dirty.difference_update(number for number, (at, _) in sectors.items() if self.written[number] == at)


NameChange = tuple[str, str, SimFile | None]
"""(directory, name, what it names from then on)."""


class Platter:
    """The files of one node. Everything is in memory; ``crash`` is a power cut."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.capacity_bytes = 1 << 30
        self._names: dict[str, SimFile] = {}
        self._durable_names: dict[str, SimFile] = {}
        self._pending: dict[str, list[tuple[tuple[str, SimFile | None], ...]]] = {}
        """By directory: changes since its last sync, in order; those of one rename belong together."""
        self._directories: set[str] = {"/"}
        self.locks: set[str] = set()
        self.sectors_lost = 0
        self.names_lost = 0

    # Names -------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> SimFile:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def create(self, path: str) -> SimFile:
        file = SimFile()
        self._change((path, file))
        return file

    def rename(self, source: str, target: str) -> None:
        self._change((target, self.find(source)), (source, None))

    def unlink(self, path: str) -> None:
        self.find(path)
        self._change((path, None))

    def _change(self, *changes: tuple[str, SimFile | None]) -> None:
        for path, file in changes:
            if file is None:
                self._names.pop(path, None)
            else:
                self._names[path] = file
        self._pending.setdefault(os.path.dirname(changes[0][0]), []).append(changes)

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def listdir(self, directory: str) -> list[str]:
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        every = [*self._names, *self._directories]
        return sorted(os.path.basename(path) for path in every if os.path.dirname(path) == directory and path != "/")

    def mkdir(self, path: str) -> None:
        self._directories.add(path)

    def sync_directory(self, path: str) -> None:
        for changes in self._pending.pop(path, []):
            self._make_durable(changes)

    def _make_durable(self, changes: tuple[tuple[str, SimFile | None], ...]) -> None:
        for path, file in changes:
            if file is None:
                self._durable_names.pop(path, None)
            else:
                self._durable_names[path] = file

    # Bytes -------------------------------------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        return sum(len(file.data) for file in self._names.values())

    def write(self, file: SimFile, data: bytes, offset: int) -> None:
        end = offset + len(data)
        if end > len(file.data):
            self.claim(end - len(file.data))
            file.data.extend(bytes(end - len(file.data)))
        file.data[offset:end] = data
        touched = range(offset // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES)
        for number in touched:
            file.written[number] = file.written.get(number, 0) + 1
        file.dirty.update(touched)
        file.lost.difference_update(touched)
        if self.random.random() < 0.05:
            self._write_back(file)

    def claim(self, size_bytes: int) -> None:
        if self.used_bytes + size_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _write_back(self, file: SimFile) -> None:
        """The kernel writes out whatever it likes, whenever it likes; it stays dirty, for nobody may rely on it."""
        file.persist({number: piece for number, piece in file.capture().items() if self.random.random() < 0.5})

    def resize(self, file: SimFile, size_bytes: int) -> None:
        if size_bytes > len(file.data):
            self.claim(size_bytes - len(file.data))
            file.data.extend(bytes(size_bytes - len(file.data)))
        else:
            del file.data[size_bytes:]
            file.dirty = {sector for sector in file.dirty if sector * SECTOR_BYTES < size_bytes}

    def drop_cache(self, file: SimFile) -> None:
        for sector in sorted(file.lost - file.dirty):
            begin = sector * SECTOR_BYTES
            piece = file.medium[begin : begin + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
            file.data[begin : begin + SECTOR_BYTES] = piece[: len(file.data) - begin]
        file.lost.clear()

    # Power -------------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The power goes: unsynced sectors and names survive by chance, and all locks end."""
        random = self.random
        for directory in sorted(self._pending):
            changes = self._pending[directory]
            kept = random.randint(0, len(changes))
            self.names_lost += len(changes) - kept
            for change in changes[:kept]:
                self._make_durable(change)
        self._pending.clear()
        for path in sorted(self._durable_names):
            self._crash_file(self._durable_names[path])
        self._names = dict(self._durable_names)
        self.locks.clear()

    def _crash_file(self, file: SimFile) -> None:
        share = self.random.choice((0.0, 0.5, 0.5, 0.9, 1.0))
        kept = {number: piece for number, piece in file.capture().items() if self.random.random() < share}
        self.sectors_lost += len(file.dirty) - len(kept)
        file.persist(kept)
        # The size is of its own: it may be there without the bytes, which read as zeros then.
        size_bytes = self.random.choice((len(file.data), max(len(file.medium), 0)))
        file.medium.extend(bytes(max(0, size_bytes - len(file.medium))))
        del file.medium[size_bytes:]
        file.data = bytearray(file.medium)
        file.dirty.clear()
        file.lost.clear()

    def kill(self) -> None:
        """The process is killed: what it wrote is in the machine's memory."""
        self.locks.clear()


@dataclass(slots=True)
class DiskMood:
    """How the disk behaves now; the nemesis changes it."""

    sync_s: tuple[float, float] = (0.0001, 0.002)
    """An fdatasync takes something in between."""
    fails_next_sync: bool = False
    is_hung: bool = False


class SimDisk:
    """One life's view of a platter: a ``Disk``. After ``cut_power`` nothing is answered any more."""

    def __init__(self, platter: Platter, mood: DiskMood, boot_id: str) -> None:
        self._platter = platter
        self._mood = mood
        self._boot_id = boot_id
        self._open: dict[int, SimFile] = {}
        self._next_handle = 3
        self._locked: dict[int, str] = {}
        self._paths: dict[int, str] = {}
        self.is_dead = False
        self.failed_syncs = 0

    def cut_power(self) -> None:
        self.is_dead = True

    def _check(self) -> None:
        if self.is_dead:
            raise OSError(errno.EIO, "the power is gone")

    def file(self, handle: Handle) -> SimFile:
        self._check()
        return self._open[handle]

    # Primitives --------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> Handle:
        del read_only
        self._check()
        if create and not self._platter.exists(path):
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
        return bytes(self.file(handle).data[offset : offset + size_bytes])

    def pread_cached(self, handle: Handle, size_bytes: int, offset: int) -> bytes | None:
        if self._platter.random.random() < 0.3:
            return None
        data = self.pread(handle, size_bytes, offset)
        return data if len(data) == size_bytes else None

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        self._platter.write(self.file(handle), b"".join(buffers), offset)

    def fdatasync(self, handle: Handle) -> None:
        file = self.file(handle)
        self.sync_file(file, file.capture())

    def sync_file(self, file: SimFile, sectors: Captured) -> None:
        """``sectors`` were dirty when the sync began. Raises EIO when the mood is so: they look clean, and are lost."""
        self._check()
        file.settle(sectors)
        if self._mood.fails_next_sync:
            self._mood.fails_next_sync = False
            self.failed_syncs += 1
            file.lost.update(sectors.keys() - file.dirty)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        file.persist(sectors)
        if len(file.medium) < len(file.data):
            file.medium.extend(bytes(len(file.data) - len(file.medium)))

    def fsync_directory(self, path: str) -> None:
        self._check()
        self._platter.sync_directory(path)

    def fallocate(self, handle: Handle, offset: int, size_bytes: int) -> None:
        file = self.file(handle)
        if offset + size_bytes > len(file.data):
            self._platter.resize(file, offset + size_bytes)

    def ftruncate(self, handle: Handle, size_bytes: int) -> None:
        self._platter.resize(self.file(handle), size_bytes)

    def rename(self, source: str, target: str) -> None:
        self._check()
        self._platter.rename(source, target)

    def unlink(self, path: str) -> None:
        self._check()
        self._platter.unlink(path)

    def listdir(self, path: str) -> list[str]:
        self._check()
        return self._platter.listdir(path)

    def mkdir(self, path: str) -> None:
        self._check()
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
        del offset, size_bytes
        self._platter.drop_cache(self.file(handle))

    def process_id(self) -> int:
        return 1

    def boot_id(self) -> str:
        return self._boot_id

    def free_bytes(self, path: str) -> int:
        del path
        return max(0, self._platter.capacity_bytes - self._platter.used_bytes)

    # Off the loop ------------------------------------------------------------------------------------------------

    def syncer(self, name: str) -> SimSyncer:
        del name
        return SimSyncer(self)

    async def run(self, job: Callable[[], Result]) -> Result:
        await self.delay()
        if self.is_dead:
            raise asyncio.CancelledError  # whoever waits for a dead machine's thread is gone himself
        return job()

    async def delay(self) -> None:
        low_s, high_s = self._mood.sync_s
        await asyncio.sleep(self._platter.random.uniform(low_s, high_s))
        while self._mood.is_hung and not self.is_dead:  # noqa: ASYNC110 – the mood is a plain field, as chance sets it
            await asyncio.sleep(0.05)

    def shutdown(self) -> None:
        """Nothing: there are no threads."""


class SimSyncer:
    """Completes late, and covers what was written before it began; what was written meanwhile is left to chance."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self._tasks: set[asyncio.Task[None]] = set()

    def sync(self, handles: Sequence[Handle], directories: Sequence[str], on_done: OnSynced) -> None:
        files = [self._disk.file(handle) for handle in handles]
        begun = [(file, file.capture()) for file in files]
        task = asyncio.get_running_loop().create_task(self._sync(begun, directories, on_done), name="sim-sync")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sync(self, begun: list[tuple[SimFile, Captured]], directories: Sequence[str], on_done: OnSynced) -> None:
        await self._disk.delay()
        if self._disk.is_dead:
            return
        failure = None
        try:
            for file, sectors in begun:
                self._disk.sync_file(file, sectors)
            for directory in directories:
                self._disk.fsync_directory(directory)
        except OSError as reason:
            failure = reason
        on_done(failure)

    def close(self) -> None:
        """Nothing to release."""
