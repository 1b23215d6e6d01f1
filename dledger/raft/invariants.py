"""The invariants of Raft. They are checked in production too, as the state changes. An assertion that fails stops the
node before it can harm the log (the shell logs it and halts the group).
"""

from __future__ import annotations

from dledger.common.types import LogPoint, NodeId, Position, Role, Term


def check_hard_state(old_term: Term, old_vote: NodeId, new_term: Term, new_vote: NodeId) -> None:
    """Terms only rise, and a vote given in a term stays given (election safety rests on it)."""
    assert new_term >= old_term, f"the term fell from {old_term} to {new_term}"
    assert new_term > old_term or not old_vote or new_vote == old_vote, (
        f"the vote of term {old_term} went from {old_vote} to {new_vote}"
    )


def check_commit(new: Position, last: LogPoint) -> None:
    """Nothing is committed that is not in the log."""
    assert new <= last.position, f"position {new} is committed but the log ends at {last.position}"


def check_leader_commit(new: Position, term_start: Position) -> None:
    """A leader commits by counting only what is of its own term (Raft §5.4.2)."""
    assert new >= term_start, f"position {new} was counted before the term's own {term_start} was committed"


def check_truncate(role: Role, after: Position, commit: Position) -> None:
    """A leader never cuts its log, and nobody cuts at or below the commit position."""
    assert role is not Role.LEADER, "a leader was to truncate its log"
    assert after >= commit, f"truncation behind {after} would cut committed position {commit}"


def check_became_leader(last_led: Term, term: Term) -> None:
    """No node leads a term twice."""
    assert term > last_led, f"term {term} was led before (last led: {last_led})"
