"""In-order answers to requests that are worked on side by side: the shape of both pipelined streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from dledger.common.config import MIB
from dledger.common.futures import retrieve

Request = TypeVar("Request")
Answer = TypeVar("Answer")

MAX_READY_BYTES = 4 * MIB
BEGUN_A_TURN = 8

_readers: set[asyncio.Task[None]] = set()
"""The loop alone does not keep those that nobody waits for."""


async def answers_in_order(
    requests: AsyncIterator[Request],
    begin: Callable[[Request], asyncio.Future[Answer]],
    max_in_flight: int,
    size_of: Callable[[Answer], int] | None = None,
) -> AsyncIterator[Answer]:
    """Begins each request as it comes, answers in their order, and reads no further while ``max_in_flight`` wait. With
    ``size_of``, neither while answers of ``MAX_READY_BYTES`` are ready, and wait for the client.

    Raises the error of the first refused request, after the answers before it; the ones begun behind it are abandoned.
    A read under way at that time is left to end by itself, as it does with its call. gRPC never frees the message meant
    for a cancelled read (grpc/grpc#43360): up to 4 MiB for a refused stream.
    """
    room = asyncio.Semaphore(max_in_flight)
    begun: asyncio.Queue[asyncio.Future[Answer] | None] = asyncio.Queue()
    ready = _Ready(size_of) if size_of is not None else None
    has_ended = False

    async def read() -> None:
        try:
            async for request in requests:
                await room.acquire()
                if ready is not None:
                    await ready.wait()
                if has_ended:
                    return
                future = begin(request)
                if ready is not None:
                    future.add_done_callback(ready.add)
                begun.put_nowait(future)
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
            if ready is not None:
                ready.take(answer)
        await reader
    finally:
        has_ended = True
        room.release()
        if ready is not None:
            ready.are_few.set()
        while not begun.empty():
            future = begun.get_nowait()
            if future is not None:
                _abandon(future)


class _Ready:
    """Answers that wait for those before them, and for the client."""

    def __init__(self, size_of: Callable[[Any], int]) -> None:
        self._size_of = size_of
        self._bytes = 0
        self._begun = 0
        self.are_few = asyncio.Event()
        self.are_few.set()

    async def wait(self) -> None:
        """Until a further request may begin. Now and then the loop goes round: answers from memory are ready then, and
        counted."""
        self._begun += 1
        if self._begun % BEGUN_A_TURN == 0:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await self.are_few.wait()

    def add(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._count(self._size_of(future.result()))

    def take(self, answer: Any) -> None:
        self._count(-self._size_of(answer))

    def _count(self, more_bytes: int) -> None:
        self._bytes += more_bytes
        if self._bytes < MAX_READY_BYTES:
            self.are_few.set()
        else:
            self.are_few.clear()


def _forget(reader: asyncio.Task[None]) -> None:
    """A failure of the reader is of no interest, heard or not: the stream has ended, by it or before it."""
    _readers.discard(reader)
    _abandon(reader)


def _abandon(future: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more; the end of the stream tells its failure, if it failed."""
    if not future.cancel():
        retrieve(future)
