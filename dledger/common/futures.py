"""Futures between a task that waits and the code that ends its wait."""

from __future__ import annotations

import asyncio
from typing import Any


def release(waiting: asyncio.Future[None] | None) -> bool:
    """Ends the wait for ``waiting``. False: nothing waits any more."""
    if waiting is None or waiting.done():
        return False
    waiting.set_result(None)
    return True


def retrieve(settled: asyncio.Future[Any]) -> None:
    """Takes the failure of a future, if it has one: nobody may wait for it any more, and asyncio would complain."""
    if not settled.cancelled():
        settled.exception()
