"""Scrubber: reads the whole log in the background within ``scrub_period_s``, so that rot is found, and repaired, while
others still have good copies. What it finds goes the way of all damage (``Log.damaged``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from dledger.common.errors import DLedgerError
from dledger.common.types import Position
from dledger.group.context import GroupContext
from dledger.log.damage.scrub import STEP_BYTES
from dledger.log.log_api import ScrubProgress

logger = logging.getLogger(__name__)

MAX_RATE_BYTES_S = 16 << 20
"""However late a pass is, it reads no faster."""
MAX_PAUSE_S = 10.0
"""A small log is read sooner than it must be."""
KEEP_EVERY_STEPS = 64
"""After so many steps a restart is told how far the pass got."""


class Scrubber:
    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._log = context.log
        self._period_s = context.config.timings.scrub_period_s
        self._task: asyncio.Task[None] | None = None
        self._suspected: list[Position] = []
        self._began_s = 0.0

    def suspect(self, positions: Sequence[Position]) -> None:
        """The frames at these positions are looked at first, at once. Comes before ``start``."""
        self._suspected += positions

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"scrub-{self._context.group}")
        self._task.add_done_callback(self._context.watch_task)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        for position in self._suspected:
            at = position
            while at <= min(position, self._log.last.position):  # a step may begin further up, and end before it
                at = await self._step(at)
        progress = await self._log.scrub_progress()
        while True:
            if progress is None:
                progress = ScrubProgress(self._first, max(0, self._context.wall_clock_ms()))
            self._began_s = self._context.now_s() - self._age_s(progress)
            await self._pass(progress)
            await asyncio.sleep(max(0.0, self._left_s))
            progress = None

    @property
    def _first(self) -> Position:
        return Position(self._log.state.start.position + 1)

    def _age_s(self, progress: ScrubProgress) -> float:
        """How long ago the pass began, as far as it is known: a wall clock may leap. Never less than 0."""
        return max(0.0, (self._context.wall_clock_ms() - progress.began_ms) / 1000)

    @property
    def _left_s(self) -> float:
        """Until the pass is to be over: by a clock that does not leap, or a pass begun in the future is never late."""
        return self._began_s + self._period_s - self._context.now_s()

    async def _pass(self, progress: ScrubProgress) -> None:
        metrics, steps = self._context.metrics, 0
        position = progress.next_position
        if position > self._log.last.position:
            return  # an earlier start has ended it
        while position <= self._log.last.position:
            await asyncio.sleep(self._pause_s)
            position = await self._step(position)
            metrics.scrub_position = position - 1
            steps += 1
            if steps % KEEP_EVERY_STEPS == 0:
                await self._keep(progress._replace(next_position=position))
        metrics.scrub_passes += 1
        metrics.scrub_last_pass_s = self._context.wall_clock_ms() / 1000
        # The next one begins when this one's period is over, also after a restart: it is kept as one that has ended.
        await self._keep(progress._replace(next_position=position))

    async def _step(self, position: Position) -> Position:
        try:
            return await self._log.scrub(position)
        except DLedgerError as failure:
            logger.warning(
                "a part of the log cannot be read by the scrub; it is tried again",
                extra={"group": self._context.group, "position": position, "why": str(failure)},
            )
            await asyncio.sleep(MAX_PAUSE_S)
            return position

    async def _keep(self, progress: ScrubProgress) -> None:
        try:
            await self._log.keep_scrub_progress(progress)
        except DLedgerError as failure:
            logger.warning(
                "how far the scrub got is not kept: after a restart it begins anew",
                extra={"group": self._context.group, "why": str(failure)},
            )

    @property
    def _pause_s(self) -> float:
        """Spreads the steps evenly over the rest of the period, by the log's size on the disk."""
        steps = max(1, self._log.size_bytes // STEP_BYTES)
        return min(MAX_PAUSE_S, max(STEP_BYTES / MAX_RATE_BYTES_S, min(self._left_s, self._period_s / steps)))
