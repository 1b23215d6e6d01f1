"""Writing a checkpoint's parts: a view of the state, hashed as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

from dledger.common.errors import Code, error
from dledger.statemachine.api import MAX_PART_BYTES
from dledger.statemachine.applier import joined_digest
from dledger.statemachine.records import End, Head, MachineRecord, Part, encode

Append = Callable[[bytes], Awaitable[object]]
Pace = Callable[[int], Awaitable[None]]


class View(NamedTuple):
    """The state as of a checkpoint's BEGIN: later commands do not change it."""

    id: int
    digest: bytes
    head: bytes
    """The sessions and the version (``Sessions.encode``)."""
    parts: Iterator[bytes]
    fold: Callable[[bytes, bytes], bytes]


class DamagedState(Exception):
    """The parts of a checkpoint are not what the state's own digest says: no END was written."""


async def write_parts(view: View, append: Append, pace: Pace | None) -> End:
    """Appends everything between BEGIN and END, and returns the END that is to follow. ``pace`` is awaited with the
    size of each part before the next one. Raises what ``append`` raises, and DamagedState."""
    size_bytes = parts = heads = 0

    async def put(record: MachineRecord, of_bytes: int) -> None:
        nonlocal size_bytes
        await append(encode(record))
        size_bytes += of_bytes
        if pace is not None:
            await pace(of_bytes)

    for at in range(0, len(view.head), MAX_PART_BYTES):
        piece = view.head[at : at + MAX_PART_BYTES]
        await put(Head(view.id, heads, piece), len(piece))
        heads += 1
    digest = b""
    for data in view.parts:
        if not data:
            await asyncio.sleep(0)
            continue
        if len(data) > MAX_PART_BYTES:
            raise error(Code.RECORD_TOO_LARGE, f"a part of a checkpoint has {len(data)} bytes, over {MAX_PART_BYTES}")
        await put(Part(view.id, parts, data), len(data))
        digest = view.fold(digest, data)
        parts += 1
    digest = joined_digest(view.head, digest)
    if digest != view.digest:
        raise DamagedState
    return End(view.id, parts, size_bytes, digest, heads)
