"""What Raft promises, checked from outside: over all nodes, all terms and all restarts of a schedule."""

from __future__ import annotations

from dledger.common.types import GENESIS, LogPoint, NodeId, Position, Term

Item = tuple[int, int]
"""(term, value): two logs that hold the same item at a position must be equal up to there."""


class ListLog:
    """A log as a list; ``durable`` items survive a crash. What lies before ``start`` was trimmed: it stays in the list
    to be compared with others from outside, and no leader can send it any more."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.durable = 0
        self.start = 0

    @property
    def last(self) -> LogPoint:
        return self.point(len(self.items))

    def point(self, position: int) -> LogPoint:
        return LogPoint(Position(position), Term(self.items[position - 1][0]), 0) if position else GENESIS

    def item(self, position: int) -> Item | None:
        return self.items[position - 1] if position else None

    def cut(self, after: int) -> None:
        assert after >= self.start, f"a cut behind {after} of a log that begins behind {self.start}"
        del self.items[after:]
        self.durable = min(self.durable, after)

    def reset(self, items: list[Item]) -> None:
        """Begins anew behind ``items``, durably."""
        self.items = list(items)
        self.durable = self.start = len(items)


class Watch:
    """What must hold at every step, whatever the schedule."""

    def __init__(self) -> None:
        self.leaders: dict[Term, NodeId] = {}
        self.votes: dict[tuple[NodeId, int, Term], NodeId] = {}
        self.committed: list[Item] = []
        self.lease_reads = 0
        self.resets = 0
        self.tails = 0
        """How often a node took frames that no leader sent it."""

    def voted(self, voter: NodeId, disk: int, term: Term, candidate: NodeId) -> None:
        given = self.votes.setdefault((voter, disk, term), candidate)
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

    def reset(self, node: NodeId, items: list[Item], commit: Position) -> None:
        self.resets += 1
        assert len(items) > commit, f"{node} began anew behind {len(items)}, below its commit position {commit}"
        assert items == self.committed[: len(items)], f"{node} began anew with what is not committed"

    def read_by_lease(self, leader: NodeId, commit: Position) -> None:
        """Everything that was acknowledged to anyone is visible."""
        self.lease_reads += 1
        missing = len(self.committed) - commit
        assert missing <= 0, f"{leader} reads by its lease and misses {missing} of what is committed"
