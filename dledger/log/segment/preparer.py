"""The next segment, made ready in the background. In a file filled with zeros and synced, a later fdatasync takes 95
µs; in a file that still grows it takes 150."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dledger.disk.disk import FULL
from dledger.disk.syncer import Handle
from dledger.log.segment.segment_files import SegmentFiles

logger = logging.getLogger(__name__)

_CHUNK = bytes(256 << 10)
_FILL_INTERVAL_S = 0.06
"""A chunk at a time, about 4 MB/s. That is far ahead of a log with appends one by one, for which each fdatasync counts.
In a log written faster, a group shares each fdatasync, and filling would only double the writing; at this rate it adds
next to nothing."""


class PreparedFile(NamedTuple):
    """A file with room for a segment."""

    path: str
    handle: Handle
    size_bytes: int


class Preparer:
    """Prepares one file at a time. ``on_failure`` hears of an error that is not a full disk."""

    def __init__(self, files: SegmentFiles, on_failure: Callable[[OSError], None]) -> None:
        self._files = files
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None
        self._ready: PreparedFile | None = None
        self._closing = asyncio.Event()

    def start(self, size_bytes: int) -> None:
        """Begins to prepare a file, unless one is ready or under way."""
        if self._ready is None and self._task is None:
            name = f"prepare-{self._files.group}"
            self._task = asyncio.get_running_loop().create_task(self._prepare(size_bytes), name=name)

    def take(self, size_bytes: int) -> PreparedFile | None:
        """The prepared file when it is ready and has room for ``size_bytes``; it is the caller's then.

        One that is still being filled is not given away: the filling would run over the frames.
        """
        if self._ready is None or self._ready.size_bytes < size_bytes:
            return None
        ready, self._ready = self._ready, None
        return ready

    async def close(self) -> None:
        """Ends the preparation under way and removes a file that was not taken."""
        self._closing.set()
        if self._task is not None:
            task, self._task = self._task, None
            await task
        if self._ready is not None:
            self._discard(self._ready)
            self._ready = None

    async def _prepare(self, size_bytes: int) -> None:
        me = self._task
        try:
            path, handle = await self._files.disk.run(partial(self._files.make, size_bytes))
            prepared = PreparedFile(path, handle, size_bytes)
            try:
                for offset in range(0, size_bytes, len(_CHUNK)):
                    if self._closing.is_set():
                        break
                    await self._files.disk.run(partial(self._fill, prepared, offset))
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._closing.wait(), _FILL_INTERVAL_S)
                await self._files.disk.run(partial(self._files.disk.fdatasync, handle))
            except OSError:
                self._discard(prepared)
                raise
            self._ready = prepared
        except OSError as reason:
            if reason.errno not in FULL:
                self._on_failure(reason)
            logger.warning("the next segment cannot be prepared", extra={"why": str(reason)})
        finally:
            if self._task is me:
                self._task = None

    def _fill(self, prepared: PreparedFile, offset: int) -> None:
        zeros = memoryview(_CHUNK)[: prepared.size_bytes - offset]
        self._files.disk.pwritev(prepared.handle, [zeros], offset)
        # Begins to write the chunk out without waiting for it. A sync for each chunk would be a commit of the file
        # system's journal each time. One sync of the whole file would make group commits wait behind it.
        self._files.disk.drop_cache(prepared.handle, offset, len(zeros))

    def _discard(self, prepared: PreparedFile) -> None:
        """Where the disk fails it stays, until the next start."""
        self._files.disk.close(prepared.handle)
        try:
            self._files.disk.unlink(prepared.path)
        except OSError as reason:
            logger.warning("a spare segment cannot be removed", extra={"path": prepared.path, "why": str(reason)})
