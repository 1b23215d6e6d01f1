"""Waiting on a node that may be cut off: it ends when there has been no leader for longer than elections take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.refusals import NO_LEADER, Refusal

Result = TypeVar("Result")


async def while_led(backend: StoreBackend, work: Coroutine[Any, Any, Result]) -> Result:
    """Raises Refusal (NO_LEADER), and what the work raises."""
    loop = asyncio.get_running_loop()
    working = loop.create_task(work, name="waiting work")
    lost = loop.create_task(backend.leader_lost(), name="waiting for the loss of the leader")
    try:
        await asyncio.wait([working, lost], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        lost.result()
        raise Refusal(NO_LEADER)
    finally:
        working.cancel()
        lost.cancel()
        await asyncio.wait([working, lost])


async def items_while_led(backend: StoreBackend, items: AsyncGenerator[Result, None]) -> AsyncGenerator[Result, None]:
    """Raises as ``while_led``."""
    async with aclosing(items):
        while True:
            try:
                item = await while_led(backend, _next(items))
            except StopAsyncIteration:
                return
            yield item


async def _next(items: AsyncGenerator[Result, None]) -> Result:
    return await anext(items)
