"""Replacing frames and removing segments: one change at a time. A reader that read meanwhile begins again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dledger.common.futures import retrieve


class LogRewriteLock:
    """``lock`` is held by a task that takes segments out of the log, or that must find them there."""

    def __init__(self, group: str) -> None:
        self.lock = asyncio.Lock()
        self.generation = 0
        """Of the frames: another one after each truncation and reset."""
        self._group = group
        self._replacing: asyncio.Task[None] | None = None

    @property
    def is_replacing(self) -> bool:
        """Whether a truncation or a reset is under way."""
        return self._replacing is not None

    async def replace(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Does ``work``, which replaces frames, with the lock held. A caller that is cancelled does not stop it."""
        self.generation += 1

        async def alone() -> None:
            try:
                async with self.lock:
                    await work()
            finally:
                self._replacing = None

        # A task of the log's own: a caller that is cancelled must not leave the work running under a log that closes.
        self._replacing = asyncio.get_running_loop().create_task(alone(), name=f"{name}-{self._group}")
        # The caller is told of a failure, if it still waits; everybody is told of a disk that failed.
        self._replacing.add_done_callback(retrieve)
        await asyncio.shield(self._replacing)

    async def settle(self) -> None:
        """Returns when no replacement is under way. Raises nothing of what became of it."""
        while self._replacing is not None:
            await asyncio.wait([self._replacing])
