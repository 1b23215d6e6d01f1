"""Repairer: takes damaged frames back from the other nodes, under any leader or none.

For each damaged range it asks one node after the other, leader or not. When one node has no more of it, the next one is
asked, so every frame may come from another node. The frames are written back only if they are proven to be the ones
that stood there (log/damage/repair.py). While no node has a good copy, the Repairer keeps asking and logs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from dledger.common.errors import CorruptLog
from dledger.common.limited_log import LimitedLog
from dledger.common.types import NodeId
from dledger.group.repair.frame_client import FrameClient
from dledger.group.repair.frame_server import Correspondent
from dledger.log.frame.frame import Frame
from dledger.log.log_api import DamagedRange
from dledger.raft.messages import FetchResult

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""After every node was asked in vain."""


class Repairable(Protocol):
    """A log with damage: ``api.Log``, or a ``DamagedLog``."""

    def damaged(self) -> list[DamagedRange]: ...

    async def repair(self, damaged: DamagedRange, frames: Sequence[Frame]) -> None: ...


class Repairer:
    def __init__(
        self,
        context: Correspondent,
        log: Repairable,
        client: FrameClient,
        on_trimmed: Callable[[NodeId, DamagedRange], None] | None = None,
    ) -> None:
        """``on_trimmed`` is told of a node if its log begins behind the first frame of a damaged range."""
        self._on_trimmed = on_trimmed
        self._context = context
        self._log = log
        self._client = client
        self._limited_log = LimitedLog(logger)
        self._task: asyncio.Task[None] | None = None
        self._retry = asyncio.Event()
        self._is_stopped = False
        self.missing: list[DamagedRange] = []
        """The ranges of which no node had a good copy when they were last asked for."""

    @property
    def is_stuck(self) -> bool:
        return bool(self.missing)

    def wake(self) -> None:
        """Something was found damaged, or another node can be asked."""
        self._retry.set()
        if self._task is None and not self._is_stopped and self._log.damaged():
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"repair-{self._context.group}")
            self._task.add_done_callback(self._ended)

    def stop(self) -> None:
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._context.watch_task(task)
        if not task.cancelled() and task.exception() is None:
            self.wake()  # found damaged since the task looked last

    async def _run(self) -> None:
        while damaged := self._log.damaged():
            self._retry.clear()
            self.missing = [each for each in damaged if not await self._repair(each)]
            if self.missing:
                self._tell(self.missing)
                await self._wait()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(RETRY_S):
                await self._retry.wait()
        except TimeoutError:
            return

    async def _repair(self, damaged: DamagedRange) -> bool:
        """Repairs one range. If frames do not fit, it begins again with the next node: the first one may have another
        log. Returns whether it was repaired."""
        peers = self._context.fetch_from()
        for at in range(len(peers)):
            frames = await self._gather(damaged, [*peers[at:], *peers[:at]])
            if not frames:
                return False
            try:
                await self._log.repair(damaged, frames)
            except CorruptLog as refusal:
                group, now_s, why = self._context.group, self._context.now_s(), str(refusal)
                self._limited_log.say(
                    logging.WARNING, "refused", now_s, "frames for a repair are refused", group=group, why=why
                )
                continue
            self._context.metrics.repairs += 1
            self._context.metrics.frames_repaired += len(frames)
            return True
        return False

    async def _gather(self, damaged: DamagedRange, peers: Sequence[NodeId]) -> list[Frame]:
        """All frames of the range, from any nodes that have them; empty if no node has some frame of it."""
        frames: list[Frame] = []
        previous = damaged.previous
        while previous.position < damaged.last:
            for peer in peers:
                answer = await self._client.ask(peer, previous, damaged.last)
                is_trimmed = answer is not None and answer.result is FetchResult.TRIMMED
                if is_trimmed and not frames and self._on_trimmed is not None:
                    self._on_trimmed(peer, damaged)
                if answer is not None and answer.frames:
                    frames += answer.frames
                    previous = frames[-1].header.point
                    break
            else:
                return []
        return frames

    def _tell(self, missing: Sequence[DamagedRange]) -> None:
        self._limited_log.say(
            logging.ERROR,
            "stuck",
            self._context.now_s(),
            "damaged frames are not repaired: no node that answers has a good copy; they are asked again",
            group=self._context.group,
            ranges=len(missing),
            frames=sum(each.frames for each in missing),
            first=missing[0].first,
            last=missing[0].last,
        )
