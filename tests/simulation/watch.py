"""What must never happen, asked at every step: one place that knows what all nodes said and hold.

Each check names the invariant in the message of its ``Violation``.
"""

from __future__ import annotations

from dledger.raft.messages import (
    AppendResponse,
    Message,
    PushResult,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.server.replica import Replica
from dledger.types import LogPoint, NodeId, Position, Term


class Violation(AssertionError):
    """An invariant is broken. ``invariant`` is its name."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant


class Watch:
    """Remembers over all lives of all nodes. What it holds against a node is keyed by the node's disk."""

    def __init__(self) -> None:
        self.leaders: dict[Term, NodeId] = {}
        self.elections = 0
        self.committed: list[LogPoint] = []
        """Every committed frame, by position − 1."""
        self._votes: dict[tuple[str, Term], NodeId] = {}
        self._terms: dict[str, Term] = {}
        self._commits: dict[tuple[NodeId, int], Position] = {}

    # Elections ---------------------------------------------------------------------------------------------------

    def leads(self, node: NodeId, term: Term) -> None:
        known = self.leaders.setdefault(term, node)
        if known != node:
            raise Violation("election safety", f"{known} and {node} lead term {term}")
        self.elections += 1

    def sent(self, node: NodeId, disk: str, message: Message) -> None:
        """``node`` puts ``message`` on the wire: it binds its disk from now on."""
        if isinstance(message, VoteRequest | VoteResponse) and message.is_pre_vote:
            return
        self._terms[disk] = max(self._terms.get(disk, Term(0)), message.term)
        if isinstance(message, VoteRequest):
            self._vote(disk, message.term, node)

    def granted(self, disk: str, candidate: NodeId, message: VoteResponse) -> None:
        if message.result is VoteResult.ACCEPT and not message.is_pre_vote:
            self._vote(disk, message.request_term, candidate)

    def _vote(self, disk: str, term: Term, candidate: NodeId) -> None:
        known = self._votes.setdefault((disk, term), candidate)
        if known != candidate:
            raise Violation("one vote a term", f"the disk {disk} voted for {known} and {candidate} in term {term}")

    # The log -----------------------------------------------------------------------------------------------------

    def commits(self, node: NodeId, life: int, replica: Replica) -> None:
        """``node`` has just raised its commit position: it must say what everybody says."""
        key, position = (node, life), replica.core.commit_position
        before = self._commits.get(key, Position(0))
        if position < before:
            raise Violation("commit only rises", f"{node} fell from {before} to {position}")
        self._commits[key] = position
        log = replica.log
        first = max(before, log.state.start.position) + 1
        for at in range(first, position + 1):
            frames = log.cached(Position(at), 1)
            if frames:
                self._agree(node, frames[0].header.point)

    def _agree(self, node: NodeId, point: LogPoint) -> None:
        at = point.position - 1
        if at < len(self.committed):
            known = self.committed[at]
            if known.position and known != point:
                raise Violation("state machine safety", f"{node} committed {point}, {known} was committed before")
            self.committed[at] = point
        else:
            missing = at - len(self.committed)
            self.committed.extend([LogPoint(Position(0), Term(0), 0)] * missing)
            self.committed.append(point)

    def acknowledged(self, node: NodeId, message: AppendResponse, replica: Replica) -> None:
        if message.result is PushResult.SUCCESS and message.position > replica.log.durable_position:
            raise Violation(
                "persist before send",
                f"{node} acknowledged {message.position}, durable is {replica.log.durable_position}",
            )

    # Lives -------------------------------------------------------------------------------------------------------

    def restarted(self, node: NodeId, disk: str, replica: Replica, promised: Position) -> None:
        """After a crash: what the node said was durable, and what it promised, is still there."""
        if replica.core.term < self._terms.get(disk, Term(0)):
            raise Violation(
                "promises survive", f"{node} spoke of term {self._terms[disk]} and came back with {replica.core.term}"
            )
        last = replica.log.last.position
        if last < promised:
            raise Violation("durable survives", f"{node} had {promised} durable and came back with {last}")
