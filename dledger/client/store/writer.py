"""The changes of one client: many at a time, over a few sessions, each with a deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dledger.client.append_queue import TICK_S
from dledger.client.store.keys import MAX_REQUEST_BYTES
from dledger.client.store.lane import Lane
from dledger.client.store.submission import Submission
from dledger.common.errors import Code, InvalidRequest, error
from dledger.rpc.client.cancellation import client_closed

if TYPE_CHECKING:
    import random

    from dledger.client.store.nodes import StoreNodes

MAX_LANES = 4
"""Sessions of one client: each has so many requests under way as the store allows (lane.WINDOW)."""
MAX_PENDING = 10_000
"""Requests without an outcome."""


class Writer:
    """Starts its lanes when they are needed."""

    def __init__(self, nodes: StoreNodes, rng: random.Random) -> None:
        self._nodes = nodes
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._lanes: list[Lane] = []
        self._timer: asyncio.TimerHandle | None = None
        self._settled: asyncio.Event = asyncio.Event()
        self._is_closed = False

    async def submit(self, kind: str, message: Any, timeout_ms: float) -> Any:
        """The store's answer. ``kind``: the field of SubmitRequest that takes the message.

        The request is carried out once, however often it has to be sent. Raises PendingFull, the store's refusal,
        Unavailable and DeadlineExceeded when surely nothing was changed, OutcomeUnknown when it may have been.
        """
        if self._is_closed:
            raise client_closed()
        if message.ByteSize() > MAX_REQUEST_BYTES:
            raise InvalidRequest(f"the request has {message.ByteSize()} bytes: the store takes {MAX_REQUEST_BYTES}")
        if self.pending >= MAX_PENDING:
            text = f"{MAX_PENDING} changes of the store wait already: await some of them first"
            raise error(Code.LEADER_PENDING_FULL, text)
        answer = self._loop.create_future()
        self._lane().put(Submission(kind, message, answer, self._loop.time() + timeout_ms / 1000))
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_S, self._tick)
        return await answer

    @property
    def pending(self) -> int:
        """How many requests have no outcome."""
        return sum(map(len, self._lanes))

    def _lane(self) -> Lane:
        self._lanes = [each for each in self._lanes if each.is_running]
        for lane in self._lanes:
            if lane.has_room:
                return lane
        if len(self._lanes) < MAX_LANES:
            self._lanes.append(Lane(self._nodes, self._rng, f"lane {len(self._lanes)}", self._settled.set))
            return self._lanes[-1]
        return min(self._lanes, key=len)

    def _tick(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        for lane in self._lanes:
            for each in lane.submissions():
                if each.deadline_s <= now_s:
                    each.expire("no answer came in time", lane.last_refusal)
            lane.drop_settled()
        if self.pending:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    async def close(self, timeout_s: float) -> None:
        """Waits for the outcomes of everything pending, at most so long; then ends what is left."""
        self._is_closed = True
        try:
            async with asyncio.timeout(timeout_s):
                while self.pending:
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            pass  # what is left is told so below
        finally:
            await self.end()

    async def end(self) -> None:
        """Ends what is pending now."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(lane.close(client_closed()) for lane in self._lanes))
