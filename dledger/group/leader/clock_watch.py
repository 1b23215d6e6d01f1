"""Tells in the log of wrong clocks: this leader's, or the clocks that stamped the last record."""

from __future__ import annotations

import logging

from dledger.common.limited_log import LimitedLog
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

    def check(self) -> None:
        """Called on a leader now and then."""
        context, leadership = self._context, self._context.core.leadership
        if leadership is None:
            return
        own_ms = context.wall_clock_ms()
        agreed_ms = leadership.agreed_clock_ms(own_ms, context.now_ms())
        if not agreed_ms:
            return
        if own_ms - agreed_ms > MAX_STAMP_LEAD_MS:
            self._warn(
                "this leader's clock is ahead of the other voters', and its records are stamped by theirs: see to it",
                own_ms - agreed_ms,
            )
        # Timestamps never run back, so this one is every later record's until the clocks reach it.
        record_ms = context.log.state.last_timestamp_ms
        if record_ms - agreed_ms > MAX_RECORD_LEAD_MS:
            self._warn(
                "the last record's time is ahead of this leader's clock or a majority's, and later records get that "
                "time until the clocks reach it: see to the clocks",
                record_ms - agreed_ms,
            )

    def _warn(self, event: str, ahead_ms: int) -> None:
        self._limited_log.say(
            logging.WARNING, event, self._context.now_s(), event, group=self._context.group, ahead_ms=ahead_ms
        )
