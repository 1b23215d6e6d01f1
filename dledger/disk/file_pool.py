"""Open files, kept open while they are used and a bounded number of them beyond that.

A log has thousands of files, and a process may have few open. ``FilePool`` opens a file at its first use. Of the files
that may be closed again it keeps the most recently used ones. A **pin** keeps a file open while a thread works with its
handle, or while an asynchronous operation is under way. A file that is to be closed meanwhile is closed by its last
``unpin``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from dledger.common.errors import Code, error
from dledger.disk.disk import Disk
from dledger.disk.syncer import Handle


class PooledFile(Protocol):
    """What the pool keeps of a file. Only the pool writes these but ``path``."""

    path: str
    handle: Handle | None
    """None: it is closed."""
    pins: int
    """Uses of ``handle`` that are under way."""
    closing: bool
    """The last ``unpin`` closes it."""


File = TypeVar("File", bound=PooledFile)


class FilePool(Generic[File]):
    """The open files of one directory. ``most_idle``: so many that may be closed stay open. All calls are made on the
    event loop, or all by the one thread that owns the pool."""

    def __init__(self, disk: Disk, directory: str, *, most_idle: int) -> None:
        self._disk = disk
        self._directory = directory
        self._most_idle = most_idle
        self._idle: OrderedDict[int, File] = OrderedDict()
        """By ``id``: those that may be closed. The least recently used comes first."""
        self._is_closed = False

    def open(self, file: File, *, may_close: bool) -> Handle:
        """The file's handle. The caller uses it at once: another ``open`` may close a file that ``may_close`` and is
        not pinned. Raises SHUTTING_DOWN behind ``shut``, and OSError."""
        if file.handle is None:
            if self._is_closed:
                raise error(Code.SHUTTING_DOWN, f"the log in {self._directory} is closed; ask another node")
            file.handle = self._disk.open(file.path)
        if may_close:
            self._idle[id(file)] = file
            self._idle.move_to_end(id(file))
            while len(self._idle) > self._most_idle:
                self.close(next(iter(self._idle.values())))
        return file.handle

    def keep_open(self, file: File) -> None:
        """The pool does not close it by itself any more."""
        self._idle.pop(id(file), None)

    def pin(self, file: File, *, may_close: bool) -> Handle:
        """The file's handle, which stays open until ``unpin``. Raises as ``open``."""
        handle = self.open(file, may_close=may_close)
        file.pins += 1
        return handle

    def unpin(self, file: File) -> None:
        file.pins -= 1
        if file.closing and not file.pins:
            self.close(file)

    def close(self, file: File) -> None:
        """Closes the file now, or when the last use of it ends."""
        self.keep_open(file)
        if file.pins:
            file.closing = True
            return
        file.closing = False
        if file.handle is not None:
            self._disk.close(file.handle)
            file.handle = None

    def shut(self) -> None:
        """From now on nothing is opened. Files that are open are the caller's to close."""
        self._is_closed = True

    @contextmanager
    def reading(self, file: File) -> Iterator[Handle]:
        """A handle of the caller's own, for any thread; the pool does not know of it."""
        handle = self._disk.open(file.path, read_only=True)
        try:
            yield handle
        finally:
            self._disk.close(handle)
