"""Reading a file from a device that does not give every page back.

Only for a search for damage, or for data with a second source. The end of a log must not depend on a device that fails.
"""

from __future__ import annotations

import errno
from itertools import pairwise

from dledger.disk.disk import PAGE_BYTES, Disk
from dledger.disk.syncer import Handle

UNREADABLE_PAGE = (bytes(range(1, 252)) * 17)[:PAGE_BYTES]
"""No frame's bytes, nor a record's, as far as anybody would write them; zeros may be."""


class PatientReader:
    """Reads one file. A page for which the device returns EIO reads as ``UNREADABLE_PAGE``. Frames in it then count as
    rotten and are repaired by writing, which makes the device map the page to another sector."""

    def __init__(self, disk: Disk, handle: Handle) -> None:
        self._disk = disk
        self._handle = handle
        self.failure: OSError | None = None
        """Why a page was not given back, if one was not."""

    def __call__(self, size_bytes: int, offset: int) -> bytes:
        """Raises OSError for any reason but EIO."""
        try:
            return self._disk.pread(self._handle, size_bytes, offset)
        except OSError as reason:
            if reason.errno != errno.EIO:
                raise
        end = min(offset + size_bytes, self._disk.size(self._handle))
        borders = [offset, *range(offset - offset % PAGE_BYTES + PAGE_BYTES, end, PAGE_BYTES), end]
        return b"".join(self._page(at, following) for at, following in pairwise(borders))

    def _page(self, offset: int, end: int) -> bytes:
        try:
            return self._disk.pread(self._handle, end - offset, offset)
        except OSError as reason:
            if reason.errno != errno.EIO:
                raise
            self.failure = reason
            return UNREADABLE_PAGE[: end - offset]
