"""What Raft promises, checked from outside: over all nodes, all terms and all restarts of a schedule."""

from __future__ import annotations

from dledger.types import GENESIS, LogPoint, NodeId, Position, Term

Item = tuple[int, int]
"""(term, value): two logs that hold the same item at a position must be equal up to there."""


class ListLog:
    """A log as a list; ``durable`` items survive a crash."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.durable = 0

    @property
    def last(self) -> LogPoint:
        if not self.items:
            return GENESIS
        return LogPoint(Position(len(self.items)), Term(self.items[-1][0]), 0)

    def item(self, position: int) -> Item | None:
        return self.items[position - 1] if position else None

    def cut(self, after: int) -> None:
        del self.items[after:]
        self.durable = min(self.durable, after)


class Watch:
    """What must hold at every step, whatever the schedule."""

    def __init__(self) -> None:
        self.leaders: dict[Term, NodeId] = {}
        self.votes: dict[tuple[NodeId, Term], NodeId] = {}
        self.committed: list[Item] = []

    def voted(self, voter: NodeId, term: Term, candidate: NodeId) -> None:
        given = self.votes.setdefault((voter, term), candidate)
        assert given == candidate, f"{voter} voted for {given} and {candidate} in term {term}"

    def led(self, leader: NodeId, term: Term, log: ListLog) -> None:
        known = self.leaders.setdefault(term, leader)
        assert known == leader, f"{known} and {leader} lead term {term}"
        assert log.items[: len(self.committed)] == self.committed, f"{leader} leads {term} without what is committed"

    def saw_commit(self, node: NodeId, log: ListLog, position: Position) -> None:
        assert position <= len(log.items), f"{node} committed {position} of {len(log.items)}"
        shared = min(len(self.committed), position)
        assert log.items[:shared] == self.committed[:shared], f"{node} committed other items"
        self.committed.extend(log.items[shared:position])

    def cut(self, node: NodeId, after: int, commit: Position) -> None:
        assert after >= commit, f"{node} cut behind {after}, below its commit position {commit}"
