"""Room that is kept for a full disk: for what ends it, not for what fills it.

The term's no-op, a trim, a change of the members or the settings, the small state of a roll, the beginning of a log
that is reset: none is large, and without them a log whose disk was filled by something else could neither be led nor be
made smaller. They may take the reserve where the device has no room; it is kept again as soon as there is some.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from dledger.common.config import MIB
from dledger.disk.disk import FULL, Disk

logger = logging.getLogger(__name__)

RESERVE_BYTES = 4 * MIB
"""A segment of the smallest size, and the small state of some thousand producers."""
RESERVE_NAME = "reserve"
_PROOF_NAME = "reserve.tmp"
"""A leftover goes with the next start, like any temporary file."""


class Reserve:
    """One file. All methods block, and may be called in any thread."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = str(directory)
        self._path = str(directory / RESERVE_NAME)
        self._proof = str(directory / _PROOF_NAME)

    def take(self) -> bool:
        """Gives the room back to the file system. False: there was nothing to give. Raises OSError."""
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

    def prove(self) -> bool:
        """Keeps the reserve, if it is not kept, and tells whether there is room for as much again. Raises OSError, not
        for a full disk."""
        try:
            if not self.is_kept:
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
            self._disk.fallocate(handle, 0, RESERVE_BYTES)
        except OSError:
            with contextlib.suppress(OSError):  # the first error counts; the next start removes the file
                self._disk.unlink(path)
            raise
        finally:
            self._disk.close(handle)
