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
    """The last COMPARE after which the leader of ``term`` went further down, past frames that were damaged at that
    time.

    The leader may still be on its way down, below frames that are repaired by now and equal to its own. ``request_id``
    is that COMPARE's. Term 0: there was none.
    """

    term: Term = Term(0)
    request_id: int = 0


def compare_elsewhere(asked: Position, start: LogPoint, last: LogPoint) -> LogPoint | None:
    """The point to name when the leader asks outside of this log (INCONSISTENT_STATE). None: the position lies inside.

    Below the start the answer is the start: it is committed, so the leader has it too and finds it equal next. Beyond
    the end the answer is the end.
    """
    if asked < start.position:
        return start
    return last if asked > last.position else None


def judge_compare(
    asked: LogPoint, mine: LogPoint, commit: Position, committed_before_term: Position = GENESIS.position
) -> PushResult:
    """Compares the leader's point with ``mine``, this log's point at the same position.

    DIVERGED means that neither log may be cut for the other. Either both have the same (position, term) and other
    bytes, or they differ at or below the commit position. Or the leader asks below ``committed_before_term``, although
    it must hold everything up to there.
    """
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
    """Whether this log may begin anew behind ``point``, where the leader's log begins. All up to ``point`` is
    committed.

    ``mine`` is this log's point at that position, None when it is outside of this log.

    * SUCCESS: it may. If this log reaches that position, it has another frame there. That frame and everything behind
      it was never committed, and is cut first. The frames below may be equal.
    * INCONSISTENT_STATE: this log has the point, or begins behind it. The leader is to compare again.
    * DIVERGED: as for COMPARE.
    """
    if point.position < start.position or mine == point:
        return PushResult.INCONSISTENT_STATE
    if mine is not None and judge_compare(point, mine, commit) is PushResult.DIVERGED:
        return PushResult.DIVERGED
    return PushResult.SUCCESS
