"""Room kept for a full disk: for entries that end this state, not for entries that fill the disk.

These are the term's no-op, a trim, and a change of the members or the settings. The small state of a roll and the
beginning of a reset log are others. None is large. Without them a log on a full disk could neither be led nor be made
smaller. They may take the reserve if the device has no room. It is kept again as soon as there is some.

A process keeps two on a file system. One is for the log that all others depend on. The others share the second, which
grows with their number. So a hundred logs that are led anew on a full disk leave the first one its room.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path

from dledger.common.config import MIB
from dledger.disk.disk import FULL, Disk

logger = logging.getLogger(__name__)

RESERVE_BYTES = 4 * MIB
"""Some dozen segments of the smallest size, and the small state of some thousand producers."""
RESERVE_BYTES_A_LOG = MIB // 8
"""A segment of the smallest size, and a small state that is small indeed."""
RESERVE_NAME = "reserve"
SHARED_RESERVE_NAME = "reserve.shared"
_PROOF_SUFFIX = ".tmp"
"""A crash may leave it. The next ``prove``, which every start begins with, takes it as its own and removes it."""


class Reserve:
    """One file. All methods block, and may be called in any thread, by several logs at a time."""

    def __init__(self, disk: Disk, directory: Path, size_bytes: int | None = None, name: str = RESERVE_NAME) -> None:
        """``directory`` lies on the file system that the reserve is for. ``size_bytes``: None is ``RESERVE_BYTES``."""
        self._disk = disk
        self._directory = str(directory)
        self._path = str(directory / name)
        self._proof = self._path + _PROOF_SUFFIX
        self._size_bytes = RESERVE_BYTES if size_bytes is None else size_bytes
        self._one_at_a_time = threading.Lock()

    def grow(self, size_bytes: int) -> bool:
        """From the next ``prove`` on so much is kept, if that is more than before. True: it is."""
        grows = size_bytes > self._size_bytes
        self._size_bytes = max(self._size_bytes, size_bytes)
        return grows

    def take(self) -> bool:
        """Gives the room back to the file system. False: there was nothing to give. Raises OSError."""
        with self._one_at_a_time:
            try:
                self._disk.unlink(self._path)
            except FileNotFoundError:
                return False
            self._disk.fsync_directory(self._directory)  # until then the file system may hold the room back
        logger.warning("the disk is full: the room that was kept for it is used", extra={"directory": self._directory})
        return True

    @property
    def is_kept(self) -> bool:
        return self._disk.exists(self._path)

    @property
    def _is_whole(self) -> bool:
        if not self.is_kept:
            return False
        handle = self._disk.open(self._path, read_only=True)
        try:
            return self._disk.size(handle) >= self._size_bytes
        finally:
            self._disk.close(handle)

    def prove(self) -> bool:
        """Keeps the reserve, if it is not kept, and tells whether there is room for as much again. Raises OSError, not
        for a full disk."""
        with self._one_at_a_time:
            try:
                if not self._is_whole:
                    self._make(self._proof)
                    self._disk.rename(self._proof, self._path)
                self._make(self._proof)
                self._disk.unlink(self._proof)
            except OSError as reason:
                if reason.errno not in FULL:
                    raise
                return False
        return True

    def _make(self, path: str) -> None:
        handle = self._disk.open(path, create=True)
        try:
            self._disk.fallocate(handle, 0, self._size_bytes)
        except OSError:
            with contextlib.suppress(OSError):  # the first error counts; the next proof removes the file
                self._disk.unlink(path)
            raise
        finally:
            self._disk.close(handle)


class Reserves:
    """The reserve of the log on which all others depend, and the reserve shared by the others."""

    def __init__(self, disk: Disk, directory: Path, first: str) -> None:
        """``first`` names that log."""
        self._first = first
        self._own = Reserve(disk, directory)
        self._shared = Reserve(disk, directory, 0, SHARED_RESERVE_NAME)
        self._sharing: set[str] = set()

    def of(self, log: str) -> tuple[Reserve, bool]:
        """The reserve that the log may take, and whether more is to be kept for it from the next ``prove`` on."""
        if log == self._first:
            return self._own, False
        self._sharing.add(log)
        return self._shared, self._shared.grow(RESERVE_BYTES_A_LOG * len(self._sharing))

    def prove(self) -> bool:
        """As ``Reserve.prove``, of both."""
        return self._own.prove() and (not self._sharing or self._shared.prove())
