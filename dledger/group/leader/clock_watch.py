"""Tells of wrong clocks: this leader's, or the clocks that stamped the last record."""

from __future__ import annotations

import logging

from dledger.common.limited_log import LimitedLog
from dledger.common.types import Role
from dledger.group.context import GroupContext
from dledger.raft.leadership import MAX_STAMP_LEAD_MS

logger = logging.getLogger(__name__)

MAX_RECORD_LEAD_MS = 60_000
"""The last record's timestamp may be so far ahead of this leader's clock, or of a majority's if that one is behind. It
is more than ``MAX_STAMP_LEAD_MS``, so a lead that one wrong clock may write is not told of as well."""


class ClockWatch:
    """Compares with the clocks that a majority of the voters tells. While no majority is heard it says nothing."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._limited_log = LimitedLog(logger)
        self._clock_ahead_ms = 0
        self._record_ahead_ms = 0

    @property
    def clock_ahead_ms(self) -> int:
        """How far the clock of this leader is ahead of the other voters'; 0 elsewhere, and within the tolerance."""
        return self._clock_ahead_ms if self._context.role is Role.LEADER else 0

    @property
    def record_ahead_ms(self) -> int:
        """How far the last record's time is ahead of the clocks; 0 elsewhere, and within the tolerance."""
        return self._record_ahead_ms if self._context.role is Role.LEADER else 0

    def check(self) -> None:
        """Called on a leader now and then."""
        context, leadership = self._context, self._context.core.leadership
        own_ms = context.wall_clock_ms()
        agreed_ms = leadership.agreed_clock_ms(own_ms, context.now_ms()) if leadership is not None else 0
        self._clock_ahead_ms = _beyond(MAX_STAMP_LEAD_MS, own_ms, agreed_ms)
        if self._clock_ahead_ms:
            self._warn(
                "this leader's clock is ahead of the other voters', and its records are stamped by theirs: see to it",
                self._clock_ahead_ms,
            )
        # Timestamps never run back, so this one is every later record's until the clocks reach it.
        self._record_ahead_ms = _beyond(MAX_RECORD_LEAD_MS, context.log.state.last_timestamp_ms, agreed_ms)
        if self._record_ahead_ms:
            self._warn(
                "the last record's time is ahead of this leader's clock or a majority's, and later records get that "
                "time until the clocks reach it: see to the clocks",
                self._record_ahead_ms,
            )

    def _warn(self, event: str, ahead_ms: int) -> None:
        self._limited_log.say(
            logging.WARNING, event, self._context.now_s(), event, group=self._context.group, ahead_ms=ahead_ms
        )


def _beyond(tolerance_ms: int, time_ms: int, agreed_ms: int) -> int:
    """How far ``time_ms`` is ahead of ``agreed_ms``; 0 within the tolerance, and where no majority is heard."""
    ahead_ms = time_ms - agreed_ms
    return ahead_ms if agreed_ms and ahead_ms > tolerance_ms else 0
