"""Appends the demo's input, a call a line, and remembers what every ack said."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from dledger.cli.demo_check import Fingerprint
from dledger.cli.demo_input import Source
from dledger.cli.output import Progress

if TYPE_CHECKING:
    from dledger.client import Log
    from dledger.common.types import Ack

WINDOW = 8_192
"""Appends in flight."""


class Milestone(asyncio.Event):
    """Reached once ``share`` of the input was sent."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share


class Feed:
    """The appends, their acks in order, and the longest time without one."""

    def __init__(self, log: Log, source: Source, milestones: list[Milestone], progress: Progress) -> None:
        self._log = log
        self._source = source
        self._milestones = deque(sorted(milestones, key=lambda milestone: milestone.share))
        self._progress = progress
        self._in_flight: deque[asyncio.Future[Ack]] = deque()
        self._last_ack_at = 0.0
        self.sent_bytes = 0
        self.fingerprint = Fingerprint()
        self.acked = array("q")
        self.longest_gap_s = 0.0
        self.duration_s = 0.0

    async def run(self, hold_at: float, until: asyncio.Event, *, trickle_s: float | None = None) -> None:
        """Appends every line, and returns once all are acknowledged. Waits at share ``hold_at`` for ``until``; with
        ``trickle_s`` it goes on slowly meanwhile, a list of lines in so many seconds.

        Raises the first failure of an append.
        """
        started = time.perf_counter()
        self._last_ack_at = started
        for lines in self._source.lines():
            self.fingerprint.add(lines)
            await self._append(lines)
            share = self.sent_bytes / self._source.size_bytes
            self._reach(share)
            if share >= hold_at and not until.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(until.wait(), trickle_s)
        while self._in_flight:
            await self._settle()
        self._reach(1.0)
        self.duration_s = time.perf_counter() - started

    async def _append(self, lines: list[bytes]) -> None:
        append, in_flight = self._log.enqueue, self._in_flight
        for line in lines:
            while len(in_flight) >= WINDOW:
                await self._settle()
            in_flight.append(append(line))
            self.sent_bytes += len(line) + 1

    async def _settle(self) -> None:
        """Takes the oldest call's ack."""
        ack = await self._in_flight.popleft()
        now = time.perf_counter()
        gap_s = now - self._last_ack_at
        # What came before the first ack was no gap in a flow, but its beginning.
        if gap_s > self.longest_gap_s and self.acked:
            self.longest_gap_s = gap_s
        self._last_ack_at = now
        self.acked.append(ack.index)

    def _reach(self, share: float) -> None:
        while self._milestones and share >= self._milestones[0].share:
            self._milestones.popleft().set()
        self._progress.update(self.sent_bytes, f"{len(self.acked):,} lines acknowledged")
