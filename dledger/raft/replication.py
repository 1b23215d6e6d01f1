"""A leader's knowledge of one follower, and the next message to it: COMPARE → TRUNCATE or RESET → APPEND.

::

    COMPARE   find the last point both logs share; every answer moves the question down, at least one term at a time
              (and up once, where this log has grown since the first question)
       │ found      │ nothing is shared that this log still has
       │          RESET     the follower's log begins anew where the leader's begins, and is compared again
    TRUNCATE  only when the follower's log goes on behind that point
       │ cut
    APPEND    pipelined: a window of frames and bytes in flight, acknowledged cumulatively
       │ INCONSISTENT_STATE, a lost connection, or an answer overdue
       └──────▶ COMPARE

What a follower decides about COMPARE and RESET is in following.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from itertools import count
from math import inf
from typing import NamedTuple

from dledger.common.types import GENESIS, DiskState, Position
from dledger.raft.messages import (
    AppendResponse,
    CompareResponse,
    HeartbeatResponse,
    MachineReport,
    PushResult,
    ResetResponse,
    TruncateResponse,
)


class PushState(Enum):
    COMPARE = "compare"
    TRUNCATE = "truncate"
    RESET = "reset"
    APPEND = "append"


class InFlight(NamedTuple):
    last_position: Position
    frames: int
    size_bytes: int
    sent_ms: float


class MachineProgress(NamedTuple):
    """What a follower reported of its state machine."""

    report: MachineReport
    behind: int
    """How many records its state lacked of those that were committed when the report came."""
    heard_ms: float


class Progress:
    """One follower, seen by the leader of one term.

    Invariants: 0 <= match <= last position of the leader; match < next; match falls only when the follower's answer to
    COMPARE names a lower end. If the follower had acknowledged more before that COMPARE was sent, it lost frames:
    ``on_compare`` returns that position, and the caller judges it. Later acknowledgements may be newer than the answer,
    and are repeated.

    A follower with another disk gets another Progress (``Leadership.forget``). All of a term share ``request_ids``, so
    an answer to an earlier Progress is never taken for an answer to this one.
    """

    __slots__ = (
        "_acknowledged_ms",
        "_differs_at",
        "_match_asked",
        "_request_ids",
        "_spoke_ms",
        "_window_bytes",
        "_window_frames",
        "acknowledged_after_ms",
        "clock_offset_ms",
        "compare_at",
        "contact_ms",
        "counts",
        "disk",
        "in_flight",
        "in_flight_bytes",
        "in_flight_frames",
        "is_compared",
        "lease_round",
        "machine",
        "match",
        "may_vote",
        "next",
        "paused_until_ms",
        "request_id",
        "round",
        "state",
        "waiting_since_ms",
    )

    def __init__(
        self,
        last: Position,
        now_ms: float,
        *,
        window_frames: int,
        window_bytes: int,
        request_ids: Iterator[int] | None = None,
    ) -> None:
        self._window_frames = window_frames
        self._window_bytes = window_bytes
        self._request_ids = count(1) if request_ids is None else request_ids
        self.is_compared = False
        """Whether a COMPARE succeeded yet: acknowledgements before that were another disk's."""
        self.state = PushState.COMPARE
        self.match = Position(0)
        self.next = Position(last + 1)
        self.compare_at = last
        self.request_id = 0
        self.waiting_since_ms: float | None = None
        """When the unanswered COMPARE, TRUNCATE or RESET was sent."""
        self._match_asked = Position(0)
        """``match`` at that time."""
        self._differs_at = inf
        """The lowest position where the logs were found to differ since the comparing began."""
        self._spoke_ms = self._acknowledged_ms = now_ms
        """When it was last asked or sent something; when it last acknowledged something that was in flight."""
        self.acknowledged_after_ms: float | None = None
        """How long that had been under way; None once it was looked at."""
        self.in_flight: deque[InFlight] = deque()
        self.in_flight_frames = self.in_flight_bytes = 0
        self.paused_until_ms = 0.0
        """Back-off after a refusal (DISK_FULL); for ever when the logs are no copies of each other (DIVERGED)."""
        self.contact_ms = now_ms
        """When it was last heard in this term; optimistic at first, so that a new leader has time to be heard."""
        self.disk = DiskState.OK
        """By its own word."""
        self.may_vote = True
        """By its own word."""
        self.machine: MachineProgress | None = None
        """By its last report in this term."""
        self.clock_offset_ms: float | None = None
        """Its wall clock less this node's monotonic clock; None before it told its time."""
        self.round = 0
        """The last read round it answered."""
        self.lease_round = 0
        """The last one it answered with a promise to vote for nobody for a while."""
        self.counts = True
        """False for a node in doubt: it gets everything, and no quorum rests on it."""

    def heard(self, answer: HeartbeatResponse, now_ms: float) -> None:
        """What an answer to a heartbeat says of the follower itself."""
        self.contact_ms = now_ms
        self.disk = answer.disk
        self.clock_offset_ms = answer.wall_clock_ms - now_ms
        self.may_vote = answer.may_vote

    def is_level(self, last: Position) -> bool:
        """Whether it has acknowledged the leader's log, which ends at ``last``, and nothing is asked of it."""
        return self.state is PushState.APPEND and self.match >= last

    @property
    def window_open(self) -> bool:
        return self.in_flight_frames < self._window_frames and self.in_flight_bytes < self._window_bytes

    def asked(self, now_ms: float) -> int:
        """A COMPARE, TRUNCATE or RESET is being sent; its request id."""
        self.request_id = next(self._request_ids)
        self._match_asked = self.match
        self.waiting_since_ms = self._spoke_ms = now_ms
        return self.request_id

    def sent(self, last_position: Position, size_bytes: int, now_ms: float) -> None:
        """An APPEND that ends at ``last_position`` was sent."""
        assert self.state is PushState.APPEND
        assert last_position >= self.next
        frames = last_position - self.next + 1
        self.in_flight.append(InFlight(last_position, frames, size_bytes, now_ms))
        self.in_flight_frames += frames
        self.in_flight_bytes += size_bytes
        self._spoke_ms = now_ms
        self.next = Position(last_position + 1)

    def restart(self, last: Position) -> None:
        """Compare again, from the leader's end: after a lost connection, a gap, or silence."""
        self.state = PushState.COMPARE
        self.compare_at = last
        self._differs_at = inf
        self.waiting_since_ms = None
        self.in_flight.clear()
        self.in_flight_frames = self.in_flight_bytes = 0

    def overdue_ms(self) -> float | None:
        """Since when the leader waits for an answer; None when it waits for none.

        A question counts from when it was sent. With several pushes in flight, the wait begins anew with each
        acknowledgement, so a slow follower that gets on is not sent everything again. Frames that were found equal and
        are not acknowledged yet count like a push: the acknowledgement may be lost.
        """
        if self.state is not PushState.APPEND:
            return self.waiting_since_ms
        if self.in_flight:
            return max(self.in_flight[0].sent_ms, self._acknowledged_ms)
        return self._spoke_ms if self.match < self.next - 1 else None

    def _awaits(self, request_id: int) -> bool:
        """Whether that question is open: not answered already, not given up, and no other asked since."""
        return self.waiting_since_ms is not None and request_id == self.request_id

    def on_compare(
        self, answer: CompareResponse, match_in_terms: Position, start: Position = GENESIS.position
    ) -> Position | None:
        """Takes the answer to the last COMPARE. Answers to older ones, and repeated answers, are dropped.

        ``match_in_terms`` is the leader's highest position at or below ``answer.position`` with a term that does not
        exceed ``answer.position_term``. The two logs can be equal up to there at most. ``start`` is where the leader's
        log begins.

        Returns None, or, if the follower lost frames, the position up to which it had acknowledged when it was asked.
        """
        if self.state is not PushState.COMPARE or not self._awaits(answer.request_id):
            return None
        self.waiting_since_ms = None
        self.may_vote &= not answer.admits_loss
        asked_position = self.compare_at
        if answer.result is PushResult.INCONSISTENT_STATE and answer.position > asked_position:
            self._compare_higher(answer.position, match_in_terms)
            return None
        lost = self._match_asked if answer.position < self._match_asked else None
        self.match = min(self.match, answer.position)
        if answer.result is PushResult.SUCCESS:
            self.is_compared = True
            self._found_equal(asked_position, answer.position, match_in_terms)
        elif answer.result is PushResult.INCONSISTENT_STATE:
            self._compare_lower(answer.position, match_in_terms, start)
        return lost

    def _found_equal(self, position: Position, their_last: Position, match_in_terms: Position) -> None:
        """The logs are equal at ``position``. The follower is to cut its log behind that, unless more may be equal.
        This log may have grown since the question, and the follower may have fetched the same frames. Then the leader
        asks higher first."""
        if position < match_in_terms < self._differs_at:
            self.compare_at = match_in_terms
            return
        self.next = Position(position + 1)
        self.state = PushState.TRUNCATE if their_last > position else PushState.APPEND

    def _compare_higher(self, their_start: Position, match_in_terms: Position) -> None:
        """The follower's log begins above the point asked. Its start is committed, so it is in this log too; else one
        of the two is no copy of the other."""
        if match_in_terms == their_start:
            self.compare_at = their_start
        else:
            self.paused_until_ms = inf

    def _compare_lower(self, answered: Position, match_in_terms: Position, start: Position) -> None:
        """The logs differ at the point asked. They differ right behind ``match_in_terms`` too, if both have a frame
        there. This log's frame there has a higher term than any frame of the follower up to there."""
        self._differs_at = min(self.compare_at, match_in_terms + 1 if match_in_terms < answered else inf)
        if match_in_terms < start or self.compare_at <= start:
            self.state = PushState.RESET
        else:
            self.compare_at = min(match_in_terms, Position(self.compare_at - 1))

    def on_truncate(self, answer: TruncateResponse, last: Position) -> None:
        if self.state is not PushState.TRUNCATE or not self._awaits(answer.request_id):
            return
        self.waiting_since_ms = None
        if answer.result is PushResult.SUCCESS:
            self.state = PushState.APPEND
        else:
            self.restart(last)
        if answer.result is PushResult.DIVERGED:
            self.paused_until_ms = inf

    def on_reset(self, answer: ResetResponse, last: Position) -> None:
        """After any answer, the follower's log is found by comparing."""
        if self.state is PushState.RESET and self._awaits(answer.request_id):
            self.restart(last)

    def on_append(self, answer: AppendResponse, last: Position, now_ms: float) -> bool:
        """True when the match position grew."""
        if not self.is_compared:
            return False
        if answer.result is PushResult.INCONSISTENT_STATE:
            if self.state is PushState.APPEND:
                self.restart(last)
            return False
        if answer.result is not PushResult.SUCCESS:
            return False
        while self.in_flight and self.in_flight[0].last_position <= answer.position:
            acknowledged = self.in_flight.popleft()
            self.in_flight_frames -= acknowledged.frames
            self.in_flight_bytes -= acknowledged.size_bytes
            self._acknowledged_ms = now_ms
            self.acknowledged_after_ms = now_ms - acknowledged.sent_ms
        if answer.position <= self.match:
            return False
        assert answer.position <= last, "a follower cannot acknowledge what was never sent"
        self.match = answer.position
        self.next = max(self.next, Position(answer.position + 1))
        return True
