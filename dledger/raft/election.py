"""How a vote is judged, and how a candidate counts. DLedger's stages, made safe.

* **WAIT_TO_REVOTE**: a pre-vote for term + 1. It persists nothing, changes nothing at either side, resets no timer and
  raises no term. So an isolated node asks for ever and its term stands still.
* **WAIT_TO_VOTE_NEXT**: a quorum would vote for us: term + 1 and the vote for ourselves are persisted, then we ask.

(Ongaro's dissertation, §9.6, calls the first a Pre-Vote; §6.4.1 and §4.2.3 discuss the stickiness.)
"""

from __future__ import annotations

from enum import Enum

from dledger.common.types import LogPoint, NodeId, Term
from dledger.raft.membership import Membership
from dledger.raft.messages import NOBODY, VoteRequest, VoteResult


class VoteStage(Enum):
    WAIT_TO_REVOTE = "wait_to_revote"
    WAIT_TO_VOTE_NEXT = "wait_to_vote_next"


BY_LOG = (VoteResult.EXPIRED_LEDGER_TERM, VoteResult.SMALL_LEDGER_END_INDEX)
"""Refused for the end of the candidate's log."""


class Ballot:
    """The answers to one request for votes. A later answer of the same voter changes nothing."""

    def __init__(self, stage: VoteStage, term: Term, membership: Membership) -> None:
        self.stage = stage
        self.term = term
        self._membership = membership
        self._answers: dict[NodeId, VoteResult] = {}
        self._ahead_in_doubt: set[NodeId] = set()
        self.clock_offsets_ms: dict[NodeId, float] = {}
        """Of the voters that answered: their wall clock, less this node's monotonic one."""

    def record(self, voter: NodeId, result: VoteResult) -> None:
        if voter in self._membership.voters:
            self._answers.setdefault(voter, result)

    def record_in_doubt(self, voter: NodeId, result: VoteResult) -> None:
        """Notes the answer of a voter in doubt. It counts for nothing. But if it refuses for the end of the candidate's
        log, the frames missing there may admit the voter's disk. So they are worth fetching."""
        if voter in self._membership.voters and result in BY_LOG:
            self._ahead_in_doubt.add(voter)

    @property
    def passed(self) -> bool:
        accepted = sum(result is VoteResult.ACCEPT for result in self._answers.values())
        return accepted >= self._membership.majority

    @property
    def wants_for_log(self) -> list[NodeId]:
        """The voters that refused only for the end of the candidate's log, in a fixed order. Empty unless a majority
        would accept a longer log."""
        accepted = sum(result is VoteResult.ACCEPT for result in self._answers.values())
        ahead = sorted(voter for voter, result in self._answers.items() if result in BY_LOG)
        ahead += sorted(self._ahead_in_doubt)
        return ahead if accepted < self._membership.majority <= accepted + len(ahead) else []

    @property
    def lost(self) -> bool:
        """Whether a quorum cannot accept any more."""
        refused = sum(result is not VoteResult.ACCEPT for result in self._answers.values())
        return len(self._membership.voters) - refused < self._membership.majority


def judge_membership(
    node_id: NodeId, candidate: NodeId, membership: Membership, *, is_ahead: bool, is_behind: bool
) -> VoteResult:
    """Whether the candidate is heard: by the later of the two logs it must be a voter.

    A candidate with a log ahead knows every change of the members since our log ends. It stands only if that log
    names it as a voter, or if it is a learner whose log is needed (``Elections._call``). A removed node is never ahead
    of a node that knows of the removal. Without this rule, a voter that was away during changes of the members could be
    needed for a majority, and know none of its candidates.

    A learner with a log level with ours is heard as well. It stands only because its log is needed, and our vote may
    be the missing one.
    """
    if candidate == node_id:
        return VoteResult.UNEXPECTED_LEADER
    is_heard = candidate in membership.voters or is_ahead or (candidate in membership.members and not is_behind)
    return VoteResult.ACCEPT if is_heard else VoteResult.UNKNOWN_LEADER


def is_ahead(request: VoteRequest, last: LogPoint) -> bool:
    """Whether the candidate's log goes on behind ours: it holds all of ours that counts, and more."""
    return (request.last_term, request.last_position) > (last.term, last.position)


def judge_log(request: VoteRequest, last: LogPoint) -> VoteResult:
    """The candidate's log must be at least as complete as ours (Raft §5.4.1), by positions."""
    if request.last_term < last.term:
        return VoteResult.EXPIRED_LEDGER_TERM
    if request.last_term == last.term and request.last_position < last.position:
        return VoteResult.SMALL_LEDGER_END_INDEX
    return VoteResult.ACCEPT


def judge_vote(vote: NodeId, candidate: NodeId) -> VoteResult:
    """One vote a term, and the same answer to the same candidate again."""
    return VoteResult.ACCEPT if vote in (NOBODY, candidate) else VoteResult.ALREADY_VOTED
