"""Records out of a stream of bytes, in constant memory: one a line, split at \\n only, gathered into batches."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Iterator

from dledger.common.errors import Code, ConfigError, error
from dledger.common.futures import release

CHUNK_BYTES = 1 << 18
BATCH_RECORDS = 4_096
BATCH_BYTES = 1 << 19
LINE_MAX_BYTES = 64 << 20
"""A line is held in memory until its end; the server's own limit is far below."""


class LineSplitter:
    """Lines out of chunks. The newline is not kept; a last line without one is a line."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held_bytes = 0
        self._ended = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ended in ``chunk``. Raises RECORD_TOO_LARGE for a line without an end."""
        first, newline, rest = chunk.partition(b"\n")
        self._parts.append(first)
        self._held_bytes += len(first)
        if self._held_bytes > LINE_MAX_BYTES:
            text = f"line {self._ended + 1} has over {LINE_MAX_BYTES} bytes: records end at a newline"
            raise error(Code.RECORD_TOO_LARGE, text)
        if not newline:
            return []
        lines = [b"".join(self._parts), *rest.split(b"\n")]
        last = lines.pop()
        self._parts, self._held_bytes = [last], len(last)
        self._ended += len(lines)
        return lines

    def finish(self) -> list[bytes]:
        """The last line, if it had no newline."""
        return [b"".join(self._parts)] if self._held_bytes else []


def batches_of(records: list[bytes]) -> Iterator[list[bytes]]:
    """``records`` in order, in lists of a size that travels well."""
    batch: list[bytes] = []
    size = 0
    for record in records:
        if batch and (size + len(record) > BATCH_BYTES or len(batch) == BATCH_RECORDS):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record)
    if batch:
        yield batch


async def line_batches(descriptor: int) -> AsyncGenerator[list[bytes]]:
    """The lines of an open file, pipe or terminal, as they come."""
    splitter = LineSplitter()
    async for chunk in chunks(descriptor):
        for batch in batches_of(splitter.feed(chunk)):
            yield batch
    if last := splitter.finish():
        yield last


async def whole(descriptor: int) -> bytes:
    """Everything up to the end, as one record. Raises RECORD_TOO_LARGE."""
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks(descriptor):
        parts.append(chunk)
        size += len(chunk)
        if size > LINE_MAX_BYTES:
            raise error(Code.RECORD_TOO_LARGE, f"the input has over {LINE_MAX_BYTES} bytes: leave --raw out for lines")
    return b"".join(parts)


async def chunks(descriptor: int) -> AsyncGenerator[bytes]:
    """What can be read, until the end. Waits for pipes and terminals on the loop; a regular file is always ready."""
    waits = _can_be_awaited(descriptor)
    while True:
        if waits:
            await _readable(descriptor)
        chunk = _read(descriptor)
        if not chunk:
            return
        yield chunk
        if not waits:
            await asyncio.sleep(0)  # let the loop send what was read


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except OSError as failure:
        if failure.errno == errno.EBADF:
            raise ConfigError("stdin is closed: give the records there, with --file or with -d") from failure
        raise ConfigError(f"the input cannot be read: {failure.strerror}; give another") from failure


def _can_be_awaited(descriptor: int) -> bool:
    loop = asyncio.get_running_loop()
    try:
        loop.add_reader(descriptor, lambda: None)
    except OSError:
        return False  # epoll refuses regular files and /dev/null
    loop.remove_reader(descriptor)
    return True


async def _readable(descriptor: int) -> None:
    """The descriptor stays blocking: a terminal's is shared with the shell, which would inherit O_NONBLOCK."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        release(ready)

    loop.add_reader(descriptor, on_readable)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
