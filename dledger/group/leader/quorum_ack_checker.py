"""QuorumAckChecker: completes pending appends, in order, when the commit position passes them.

::

    pending    [ f7 f8 f9 f10 … ]     one item a frame, however many records and callers it serves
                    ▲
              commit position         everything at or below it is answered: O(1) a frame

A frame whose callers waited too long stays in its place: its outcome is unknown until it is committed, or the term is
lost. ``WAIT_QUORUM_ACK_TIMEOUT`` and ``TERM_CHANGED`` say just that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from dledger.common.config import Limits, Timings
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Position
from dledger.log.frame.frame import FrameHeader
from dledger.log.frame.producers import KnownRange


class AppendResult(NamedTuple):
    """Where a caller's records are, committed: ``count`` of them from ``base_index`` on."""

    base_index: int
    count: int  # type: ignore[assignment]  # a field, not tuple.count
    term: int
    timestamp_ms: int


class Waiter(NamedTuple):
    """A caller, and which of the frame's records are its own."""

    future: asyncio.Future[AppendResult]
    base_index: int
    count: int  # type: ignore[assignment]  # a field, not tuple.count


@dataclass(slots=True)
class PendingFrame:
    position: int
    term: int
    timestamp_ms: int
    size_bytes: int
    accepted_s: float
    waiters: list[Waiter]

    def complete(self) -> None:
        for future, base_index, count in self.waiters:
            if not future.done():
                future.set_result(AppendResult(base_index, count, self.term, self.timestamp_ms))

    def fail(self, code: Code, message: str) -> int:
        """How many callers were told."""
        told = 0
        for waiter in self.waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error(code, message))
                told += 1
        self.waiters = []
        return told


class QuorumAckChecker:
    """The leader's pending appends. Bounded by ``max_pending_batches`` and ``max_pending_bytes``."""

    def __init__(self, limits: Limits, timings: Timings, observe_s: Callable[[float], None]) -> None:
        self._limits = limits
        self._timeout_s = timings.quorum_ack_timeout_ms / 1000
        self._observe_s = observe_s
        self._pending: deque[PendingFrame] = deque()
        self._pending_bytes = 0
        self._duplicates: list[PendingFrame] = []
        """Retries that wait for the frame they repeat, of this term or an earlier one; in the order they came."""

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    def check_room(self, queued_batches: int, queued_bytes: int) -> None:
        """Raises LEADER_PENDING_FULL when the pending batches, and those queued before it, leave no room."""
        batches = len(self._pending) + len(self._duplicates) + queued_batches
        size_bytes = self._pending_bytes + queued_bytes
        if batches >= self._limits.max_pending_batches or size_bytes >= self._limits.max_pending_bytes:
            raise error(
                Code.LEADER_PENDING_FULL,
                f"{batches} batches of {size_bytes} bytes wait for a quorum already; try again after a moment",
            )

    def add(self, header: FrameHeader, accepted_s: float, waiters: list[Waiter]) -> None:
        """A frame was just written at the end of the log."""
        assert not self._pending or self._pending[-1].position < header.position
        frame = PendingFrame(header.position, header.term, header.timestamp_ms, header.frame_len, accepted_s, waiters)
        self._pending.append(frame)
        self._pending_bytes += header.frame_len

    def join(self, known: KnownRange, future: asyncio.Future[AppendResult], now_s: float) -> None:
        """A duplicate of an uncommitted frame waits for that frame's commit, with a time of its own."""
        waiter = Waiter(future, known.base_index, known.count)
        self._duplicates.append(PendingFrame(known.position, known.term, known.timestamp_ms, 0, now_s, [waiter]))

    def on_commit(self, position: Position, now_s: float) -> int:
        """Everything up to ``position`` is committed: answers its callers. Returns how many frames that were."""
        pending = self._pending
        completed = 0
        while pending and pending[0].position <= position:
            frame = pending.popleft()
            self._pending_bytes -= frame.size_bytes
            frame.complete()
            self._observe_s(now_s - frame.accepted_s)
            completed += 1
        if self._duplicates:
            self._complete_duplicates(position)
        return completed

    def _complete_duplicates(self, position: Position) -> None:
        waiting = []
        for frame in self._duplicates:
            if frame.position <= position:
                frame.complete()
            else:
                waiting.append(frame)
        self._duplicates = waiting

    def expire(self, now_s: float, why: Callable[[], str] = str) -> int:
        """Answers WAIT_QUORUM_ACK_TIMEOUT to callers that waited too long; frames keep their place, retries come again.
        ``why`` nothing is committed, if that is known. Returns how many callers were told."""
        told = self._expire(self._pending, now_s, why)
        told += self._expire(self._duplicates, now_s, why)
        self._duplicates = [retry for retry in self._duplicates if retry.waiters]
        return told

    def _expire(self, frames: Iterable[PendingFrame], now_s: float, why: Callable[[], str]) -> int:
        told = 0
        for frame in frames:
            if frame.accepted_s > now_s - self._timeout_s:
                break
            if not frame.waiters:
                continue
            reason = f" ({known})" if (known := why()) else ""
            told += frame.fail(
                Code.WAIT_QUORUM_ACK_TIMEOUT,
                f"no quorum acknowledged the append within {self._timeout_s:g} s{reason}; it may still be committed",
            )
        return told

    def fail_all(self, failure: DLedgerError) -> int:
        """The term is over: what is pending may or may not be committed by another leader."""
        told = sum(frame.fail(failure.code, str(failure)) for frame in chain(self._duplicates, self._pending))
        self._duplicates.clear()
        self._pending.clear()
        self._pending_bytes = 0
        return told
