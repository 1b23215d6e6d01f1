"""TailFetcher: a candidate with an incomplete log fetches the missing frames, if no other node can stand in its place.

When that is so, and why it is safe, is said in raft/elections.py (``takes_tail``). The frames come by FETCH, from a
member that may have them. The chain of each proves that it follows this log.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from dledger.common.types import NodeId, Position
from dledger.group.context import GroupContext
from dledger.group.follower.entry_handler import EntryHandler
from dledger.group.repair.frame_client import FrameClient

logger = logging.getLogger(__name__)

REACH_FRAMES = 1_000_000
"""Behind the end of this log; an answer carries no more than a message's worth of them."""


class TailFetcher:
    """From one member at a time, until it has nothing more, or somebody leads."""

    def __init__(self, context: GroupContext, client: FrameClient, handler: EntryHandler) -> None:
        self._context = context
        self._client = client
        self._handler = handler
        self._task: asyncio.Task[None] | None = None

    def fetch(self, peer: NodeId) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(peer), name=f"tail-{self._context.group}")
            self._task.add_done_callback(self._done)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._context.watch_task(task)

    async def _run(self, peer: NodeId) -> None:
        context, log = self._context, self._context.log
        fields = {"group": context.group, "peer": peer, "last": log.last.position}
        logger.info(
            "this log is not complete enough to lead, and nobody else does; asking for what it lacks", extra=fields
        )
        while context.core.takes_tail:
            end = log.last
            answer = await self._client.ask(peer, end, Position(end.position + REACH_FRAMES))
            if answer is None or not answer.frames:
                return
            context.guard(partial(self._handler.take_tail, answer.frames))
            if log.last == end:
                return
