"""Much of the same work, some of it at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

AT_A_TIME = 16


async def in_batches(works: Sequence[Callable[[], Awaitable[object]]], at_a_time: int = AT_A_TIME) -> None:
    """Does all of ``works``, so many side by side. Raises the first failure when what was begun has ended; nothing more
    is begun then."""
    for first in range(0, len(works), at_a_time):
        ended = await asyncio.gather(*(work() for work in works[first : first + at_a_time]), return_exceptions=True)
        for each in ended:
            if isinstance(each, BaseException):
                raise each
