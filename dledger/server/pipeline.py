"""In-order answers to requests that are worked on side by side: the shape of both pipelined streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


async def answers_in_order(
    requests: AsyncIterator[Request], begin: Callable[[Request], asyncio.Future[Answer]], max_in_flight: int
) -> AsyncIterator[Answer]:
    """Begins each request as it comes, answers in their order, and reads no further while ``max_in_flight`` wait.

    Raises what the first refused request raised, after the answers before it; the ones begun behind it are abandoned.
    """
    room = asyncio.Semaphore(max_in_flight)
    begun: asyncio.Queue[asyncio.Future[Answer] | None] = asyncio.Queue()

    async def read() -> None:
        try:
            async for request in requests:
                await room.acquire()
                begun.put_nowait(begin(request))
        finally:
            begun.put_nowait(None)

    reader = asyncio.get_running_loop().create_task(read(), name="stream-reader")
    try:
        while (future := await begun.get()) is not None:
            answer = await future
            room.release()
            yield answer
        await reader
    finally:
        reader.cancel()
        await asyncio.wait([reader])
        _abandon(reader)
        while not begun.empty():
            future = begun.get_nowait()
            if future is not None:
                _abandon(future)


def _abandon(future: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more; what it failed of, if it did, is told of by what the stream ended with."""
    if not future.cancel() and not future.cancelled():
        future.exception()
