"""In-order answers to requests that are worked on side by side: the shape of both pipelined streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")

_readers: set[asyncio.Task[None]] = set()
"""The loop alone does not keep those that nobody waits for."""


async def answers_in_order(
    requests: AsyncIterator[Request], begin: Callable[[Request], asyncio.Future[Answer]], max_in_flight: int
) -> AsyncIterator[Answer]:
    """Begins each request as it comes, answers in their order, and reads no further while ``max_in_flight`` wait.

    Raises the error of the first refused request, after the answers before it; the ones begun behind it are abandoned.
    A read under way at that time is left to end by itself, as it does with its call. gRPC never frees the message meant
    for a cancelled read (grpc/grpc#43360): up to 4 MiB for a refused stream.
    """
    room = asyncio.Semaphore(max_in_flight)
    begun: asyncio.Queue[asyncio.Future[Answer] | None] = asyncio.Queue()
    has_ended = False

    async def read() -> None:
        try:
            async for request in requests:
                await room.acquire()
                if has_ended:
                    return
                begun.put_nowait(begin(request))
        finally:
            begun.put_nowait(None)

    reader = asyncio.get_running_loop().create_task(read(), name="stream-reader")
    _readers.add(reader)
    reader.add_done_callback(_forget)
    try:
        while (future := await begun.get()) is not None:
            answer = await future
            room.release()
            yield answer
        await reader
    finally:
        has_ended = True
        room.release()
        while not begun.empty():
            future = begun.get_nowait()
            if future is not None:
                _abandon(future)


def _forget(reader: asyncio.Task[None]) -> None:
    """A failure of the reader is of no interest, heard or not: the stream has ended, by it or before it."""
    _readers.discard(reader)
    _abandon(reader)


def _abandon(future: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more; the end of the stream tells its failure, if it failed."""
    if not future.cancel() and not future.cancelled():
        future.exception()
