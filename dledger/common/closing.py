"""Closing many parts, each whatever becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

Exit = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], Awaitable[bool]]


def unless_cancelled(close: Callable[[], Awaitable[None]]) -> Exit:
    """For ``AsyncExitStack.push_async_exit``: ``close`` also after a failure. Not when the stop was given up, for it
    would wait again for what it was given up for: a disk that hangs."""

    async def leave(kind: type[BaseException] | None, _failure: object, _trace: object) -> bool:
        if kind is None or not issubclass(kind, asyncio.CancelledError):
            await close()
        return False

    return leave
