"""FrameServer: gives frames of this node's log to any node that asks with FETCH, in any role, off the hot path.

One answer at a time to each node, and no more than ``RATE_BYTES_S`` of them. A node that repairs a large part of its
log must not disturb a node that works.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from dledger.common.config import NodeConfig
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import LogPoint, NodeId, Position, Term
from dledger.log.frame.frame import Frame, check_link
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.metrics.group import GroupMetrics
from dledger.raft.messages import Fetch, FetchResponse, FetchResult, Message

logger = logging.getLogger(__name__)

RATE_BYTES_S = 64 << 20
"""To one node."""
MAX_WAITING = 4
"""Questions of one node that wait for their turn; more are refused."""


class FrameSource(Protocol):
    """A log as far as others may read it: ``api.Log``, or a ``DamagedLog``."""

    @property
    def last(self) -> LogPoint: ...

    @property
    def state(self) -> LogSnapshot: ...

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """The voters by the log's end; none if frames that may have changed them are damaged."""
        ...

    async def read(self, first: Position, max_bytes: int) -> list[Frame]: ...


class Correspondent(Protocol):
    """Asks and answers for one group, whether or not its log is open."""

    config: NodeConfig
    group: str
    term: Term
    metrics: GroupMetrics

    def now_s(self) -> float: ...

    @property
    def owes_catch_up(self) -> bool:
        """Whether the log may have gone on behind its end."""
        ...

    @property
    def leads(self) -> bool: ...

    def send(self, peer: NodeId, message: Message) -> bool: ...

    def fetch_from(self) -> Sequence[NodeId]:
        """The nodes to ask for frames, the likeliest first."""
        ...

    def watch_task(self, task: asyncio.Task[None]) -> None:
        """A task of the group ended; an exception in it stops the node."""
        ...


class FrameServer:
    def __init__(self, context: Correspondent, log: FrameSource) -> None:
        self._context = context
        self._log = log
        self._turns: dict[NodeId, asyncio.Lock] = {}
        self._waiting = Counter[NodeId]()
        self._tasks: set[asyncio.Task[None]] = set()

    def on_fetch(self, sender: NodeId, ask: Fetch) -> None:
        if self._waiting[sender] >= MAX_WAITING:
            self._answer(sender, ask, FetchResult.BUSY)
            return
        self._waiting[sender] += 1
        task = asyncio.get_running_loop().create_task(self._serve(sender, ask), name=f"fetch-{sender}")
        self._tasks.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._context.watch_task(task)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _serve(self, sender: NodeId, ask: Fetch) -> None:
        try:
            async with self._turns.setdefault(sender, asyncio.Lock()):
                result, frames = await self._read(ask)
                self._answer(sender, ask, result, frames)
                self._context.metrics.frames_served += len(frames)
                await asyncio.sleep(sum(frame.header.stored_bytes for frame in frames) / RATE_BYTES_S)
        finally:
            self._waiting[sender] -= 1

    async def _read(self, ask: Fetch) -> tuple[FetchResult, tuple[Frame, ...]]:
        max_bytes = min(ask.max_bytes, self._context.config.limits.push_message_bytes)
        try:
            frames = await self._log.read(Position(ask.previous.position + 1), max_bytes)
        except DLedgerError as refusal:
            if refusal.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN:
                return FetchResult.TRIMMED, ()
            if refusal.code in (Code.CORRUPT_LOG, Code.DISK_ERROR):
                return FetchResult.DAMAGED, ()
            raise
        wanted = tuple(frame for frame in frames if frame.header.position <= ask.last_wanted)
        if not wanted:
            return FetchResult.DAMAGED if self._context.owes_catch_up else FetchResult.BEHIND_END, ()
        first = wanted[0]
        try:
            check_link(ask.previous, first.header.base_index, first.header, first.raw)
        except DLedgerError:
            return FetchResult.OTHER_LOG, ()
        return FetchResult.SUCCESS, wanted

    def _answer(self, to: NodeId, ask: Fetch, result: FetchResult, frames: tuple[Frame, ...] = ()) -> None:
        context, log = self._context, self._log
        answer = FetchResponse(
            context.group,
            context.term,
            result,
            ask.request_id,
            frames,
            end=log.last,
            start=log.state.start,
            voters=log.voters,
            leads=context.leads,
        )
        context.send(to, answer)
