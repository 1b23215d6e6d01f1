"""What a follower answers to COMPARE, TRUNCATE and RESET. Pure: the log is looked at, and changed, by the EntryHandler.

::

    start            commit        last          the follower's log; what lies before ``start`` was trimmed, committed
      ├─────────────────┼────────────┤
   ▲  above: go up      ▲            ▲  ▲ beyond: go down to ``last``
   asked                at or below the commit the two can only be equal: else DIVERGED
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.common.types import GENESIS, LogPoint, Position, Term
from dledger.raft.messages import PushResult


class LedDown(NamedTuple):
    """The last COMPARE that was answered with where to compare next, over frames that were damaged then and may be
    equal: the leader of ``term``, which asked as ``request_id``, may be half-way down. Term 0: none was."""

    term: Term = Term(0)
    request_id: int = 0


def compare_elsewhere(asked: Position, start: LogPoint, last: LogPoint) -> LogPoint | None:
    """The point to name in the answer (INCONSISTENT_STATE) to a COMPARE outside of this log; None when it lies inside.

    Below the start nothing is left to compare. But the start is committed, so the leader has it too: it asks there
    next, and finds it equal. Beyond the end, the end is next.
    """
    if asked < start.position:
        return start
    return last if asked > last.position else None


def judge_compare(
    asked: LogPoint, mine: LogPoint, commit: Position, committed_before_term: Position = GENESIS.position
) -> PushResult:
    """``mine`` is this log's point at the position asked. DIVERGED: neither may be cut for the other, as other bytes
    stand under one (position, term), or below the commit position; or the leader looks for what both logs share below
    what was committed before its term, which it must have."""
    if asked.position < committed_before_term:
        return PushResult.DIVERGED
    if mine == asked:
        return PushResult.SUCCESS
    if mine.term == asked.term or asked.position <= commit:
        return PushResult.DIVERGED
    return PushResult.INCONSISTENT_STATE


def judge_truncate(after: Position, matched: Position, committed_before_term: Position) -> PushResult:
    """Whether this log, which has the leader's point at ``after``, may be cut there. INCONSISTENT_STATE: the TRUNCATE
    is late, more was found equal since. DIVERGED: the leader does not have what was committed before its term."""
    if after < committed_before_term:
        return PushResult.DIVERGED
    return PushResult.INCONSISTENT_STATE if after < matched else PushResult.SUCCESS


def judge_reset(point: LogPoint, mine: LogPoint | None, start: LogPoint, commit: Position) -> PushResult:
    """Whether this log may begin anew behind ``point``, where the leader's begins; what lies there is committed.

    ``mine`` is this log's point at that position, None when it is outside. SUCCESS: it may; a log that reaches further
    has another frame there, and with it a tail that was never committed, to be cut first. Below it may be equal yet.
    INCONSISTENT_STATE: this log has the point, or begins behind it; compare again. DIVERGED as for COMPARE.
    """
    if point.position < start.position or mine == point:
        return PushResult.INCONSISTENT_STATE
    if mine is not None and judge_compare(point, mine, commit) is PushResult.DIVERGED:
        return PushResult.DIVERGED
    return PushResult.SUCCESS
