"""Closing many parts: a failure of one does not keep the others from being closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

Exit = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], Awaitable[bool]]


def unless_cancelled(close: Callable[[], Awaitable[None]]) -> Exit:
    """For ``AsyncExitStack.push_async_exit``: ``close`` is called after a failure too. It is not called after a
    cancellation. The stop was given up, perhaps because a disk hangs, and ``close`` would wait for that disk again."""

    async def leave(kind: type[BaseException] | None, _failure: object, _trace: object) -> bool:
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            await close()
        return False

    return leave
