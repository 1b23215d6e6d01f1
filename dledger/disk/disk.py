"""The disk as the log sees it. A simulation, or a test that breaks things, replaces exactly this.

Primitives are synchronous, do one system call each and raise ``OSError`` as it comes. Three ways lead off the event
loop. A log's group commits wait by a ``Syncer``. Other work that may block uses ``run``. Votes and terms use
``run_urgent``, which never waits behind either.
"""

# Primitives are system calls by name, on paths as the operating system takes them:
# ruff: noqa: PTH102, PTH104, PTH108, PTH110, PTH208
from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from dledger.common.batch import Buffer
from dledger.common.futures import retrieve
from dledger.common.open_files import needed
from dledger.disk.syncer import Handle, Syncer, SyncPool

Result = TypeVar("Result")

_IOV_MAX = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 1024
_THREADS = 4
_URGENT_THREADS = 16
"""Made when they are needed. When a node dies, all groups that it led vote at once on the other nodes. Syncs that are
under way together share a flush of the device."""
_NOT_CACHED = (errno.EAGAIN, errno.EOPNOTSUPP)
PAGE_BYTES = 4096
"""The least that a device, or its file system, fails to give back at a time."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors that mean no room, and nothing worse."""


class Disk(Protocol):
    """Files and directories. Paths are absolute or relative as the operating system takes them."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> Handle:
        """``create`` makes the file if it is missing. With ``exclusive``, a file that exists raises
        ``FileExistsError``."""
        ...

    def close(self, handle: Handle) -> None: ...

    def size(self, handle: Handle) -> int: ...

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        """Fewer bytes at the end of the file only."""
        ...

    def pread_cached(self, handle: Handle, size_bytes: int, offset: int) -> Buffer | None:
        """As ``pread`` when the page cache has everything, else None: never waits for the device."""
        ...

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        """Writes all of it, or raises with an unknown part of it written."""
        ...

    def fdatasync(self, handle: Handle) -> None: ...

    def fsync_directory(self, path: str) -> None: ...

    def fallocate(self, handle: Handle, offset: int, size_bytes: int) -> None:
        """Reserves room, and lets the file grow over it; reads as zeros."""
        ...

    def ftruncate(self, handle: Handle, size_bytes: int) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None:
        """Of an empty directory."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Sorted."""
        ...

    def mkdir(self, path: str) -> None:
        """Nothing happens when it is there already."""
        ...

    def exists(self, path: str) -> bool: ...

    def lock(self, handle: Handle) -> bool:
        """Takes the exclusive lock that ends with the handle; False when another holds it."""
        ...

    def drop_cache(self, handle: Handle, offset: int = 0, size_bytes: int = 0) -> None:
        """What is in the page cache and clean is forgotten; 0 bytes: to the end of the file."""
        ...

    def read_ahead(self, handle: Handle, offset: int, size_bytes: int) -> None:
        """Has the page cache filled while the caller goes on; a hint."""
        ...

    def process_id(self) -> int:
        """What a lock's holder is known by."""
        ...

    def boot_id(self) -> str:
        """An id that stays the same as long as the machine has not lost its memory; empty if the system does not
        tell."""
        ...

    def free_bytes(self, path: str) -> int:
        """What an ordinary user may still write on the file system of ``path``."""
        ...

    def syncer(self) -> Syncer:
        """A log's own, bound to the running event loop. Threads and the like are shared by all of the process."""
        ...

    async def run(self, job: Callable[[], Result]) -> Result:
        """Does ``job``, which calls primitives, in another thread. Jobs may overlap."""
        ...

    async def run_urgent(self, job: Callable[[], Result]) -> Result:
        """As ``run``, in threads that only urgent jobs use: small and seldom, as votes are. No data that waits for the
        device keeps them waiting."""
        ...

    def shutdown(self) -> None:
        """Releases the threads, when nothing runs any more."""
        ...


async def run_to_the_end(disk: Disk, job: Callable[[], Result], *, urgent: bool = False) -> Result:
    """As ``disk.run``, or ``run_urgent``. A cancelled caller still waits for the end of the job. So it does not let go
    of a lock or an open log while a thread still writes."""
    running = asyncio.ensure_future(disk.run_urgent(job) if urgent else disk.run(job))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        retrieve(running)  # nobody waits for it any more
        raise


def make_directories(disk: Disk, path: Path) -> None:
    """Makes ``path`` and its missing parents, durably. A killed process may have made a directory without syncing it,
    so an existing one is synced too."""
    if disk.exists(str(path)):
        with contextlib.suppress(PermissionError):  # where it is not to be opened, no process of ours made it
            disk.fsync_directory(str(path.parent))
        return
    make_directories(disk, path.parent)
    disk.mkdir(str(path))
    disk.fsync_directory(str(path.parent))


def remove_directory(disk: Disk, path: Path) -> None:
    """Removes ``path`` with the files in it, durably. Nothing happens when it is gone already. Raises OSError."""
    if not disk.exists(str(path)):
        return
    for name in disk.listdir(str(path)):
        disk.unlink(str(path / name))
    disk.rmdir(str(path))
    disk.fsync_directory(str(path.parent))


class OsDisk:
    """The operating system's own files."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="dledger-disk")
        self._urgent_executor = ThreadPoolExecutor(_URGENT_THREADS, thread_name_prefix="dledger-urgent")
        self._syncs = SyncPool(self)

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> Handle:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)
        if create:
            flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
        return Handle(needed(lambda: os.open(path, flags, 0o644)))

    def close(self, handle: Handle) -> None:
        os.close(handle)

    def size(self, handle: Handle) -> int:
        return os.fstat(handle).st_size

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        data = os.pread(handle, size_bytes, offset)
        while 0 < len(data) < size_bytes:
            more = os.pread(handle, size_bytes - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pread_cached(self, handle: Handle, size_bytes: int, offset: int) -> Buffer | None:
        data = bytearray(size_bytes)
        try:
            got = os.preadv(handle, [data], offset, os.RWF_NOWAIT)
        except OSError as reason:
            if reason.errno in _NOT_CACHED:
                return None
            raise
        return data if got == size_bytes else None

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        for at in range(0, len(buffers), _IOV_MAX):
            part = buffers[at : at + _IOV_MAX]
            expected = sum(map(len, part))
            written = os.pwritev(handle, part, offset)
            while written < expected:
                written += self._write_rest(handle, part, offset, written)
            offset += expected

    def _write_rest(self, handle: Handle, part: Sequence[Buffer], offset: int, written: int) -> int:
        rest = memoryview(b"".join(part))[written:]
        more = os.pwrite(handle, rest, offset + written)
        if not more:
            raise OSError(errno.EIO, "a write made no progress")
        return more

    def fdatasync(self, handle: Handle) -> None:
        os.fdatasync(handle)

    def fsync_directory(self, path: str) -> None:
        directory = needed(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def fallocate(self, handle: Handle, offset: int, size_bytes: int) -> None:
        os.posix_fallocate(handle, offset, size_bytes)

    def ftruncate(self, handle: Handle, size_bytes: int) -> None:
        os.ftruncate(handle, size_bytes)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        Path(path).rmdir()

    def listdir(self, path: str) -> list[str]:
        return sorted(needed(lambda: os.listdir(path)))

    def mkdir(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def lock(self, handle: Handle) -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def drop_cache(self, handle: Handle, offset: int = 0, size_bytes: int = 0) -> None:
        os.posix_fadvise(handle, offset, size_bytes, os.POSIX_FADV_DONTNEED)

    def read_ahead(self, handle: Handle, offset: int, size_bytes: int) -> None:
        os.posix_fadvise(handle, offset, size_bytes, os.POSIX_FADV_WILLNEED)

    def process_id(self) -> int:
        return os.getpid()

    def boot_id(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def free_bytes(self, path: str) -> int:
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize

    def syncer(self) -> Syncer:
        return self._syncs.syncer()

    async def run(self, job: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, job)

    async def run_urgent(self, job: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._urgent_executor, job)

    def shutdown(self) -> None:
        self._executor.shutdown()
        self._urgent_executor.shutdown()
