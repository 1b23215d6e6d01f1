"""Until when a call may take."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from dledger.common.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable

Result = TypeVar("Result")


class Deadline:
    """``timeout_ms`` for all that one call does, from now on or since the loop's time was ``begun_s``."""

    def __init__(self, timeout_ms: float, *, begun_s: float | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_ms = timeout_ms
        self._at = (self._loop.time() if begun_s is None else begun_s) + timeout_ms / 1000

    @property
    def left_ms(self) -> float:
        """Until then; 0 when it has passed."""
        return max(0.0, (self._at - self._loop.time()) * 1000)

    async def bound(self, search: Awaitable[Result]) -> Result:
        """The result of something that changes nothing. Raises DeadlineExceeded when the time is over first."""
        try:
            async with asyncio.timeout_at(self._at):
                return await search
        except TimeoutError:
            raise DeadlineExceeded(f"nobody answered within {self._timeout_ms:.0f} ms") from None
