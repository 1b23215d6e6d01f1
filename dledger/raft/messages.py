"""What nodes say to each other: a closed set of frozen messages, each checked for cluster, group, term and leader.

Every message names the ``group`` and the sender's ``term``; a batch of heartbeats names them in each row. The receiver
knows the sender from the connection. Positions and chains are as in dledger/log/frame/frame.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple

from dledger.common.types import GENESIS, DiskState, LogPoint, NodeId, Position, Term
from dledger.log.frame.frame import Frame

NOBODY = NodeId("")

MAX_TERM_LEAP = 1 << 32
"""A term so far above this node's is not believed: as many elections take a century. If a node took over a term near
the end of its 64 bits, no room would be left for another."""


class VoteResult(IntEnum):
    """DLedger's answers to a vote. Only ACCEPT counts."""

    ACCEPT = 0
    UNKNOWN_LEADER = 1
    """The candidate is not a voter that I know, or not the node I knew under this id."""
    UNEXPECTED_LEADER = 2
    """The candidate claims my own id."""
    ALREADY_HAS_LEADER = 3
    """I hear a leader: stickiness."""
    EXPIRED_VOTE_TERM = 4
    """The candidate's term is below mine."""
    EXPIRED_LEDGER_TERM = 5
    """The candidate's last term is below mine."""
    SMALL_LEDGER_END_INDEX = 6
    """The last terms are equal, the candidate's last position is below mine."""
    ALREADY_VOTED = 7
    """I voted for another in this term."""
    NOT_A_VOTER = 8
    """I do not vote: a learner, a node in doubt, or one that has not found its promises again."""
    NOT_FOUNDED = 9
    """Its log is empty and so is mine, and not all founders have met: one of them may hold what was lost here."""


class PushResult(IntEnum):
    """A follower's answer to COMPARE, TRUNCATE and APPEND."""

    SUCCESS = 0
    EXPIRED_TERM = 1
    """The sender's term is below mine (which the answer carries)."""
    INCONSISTENT_STATE = 2
    """The log does not fit: compare again from the point given."""
    DISK_FULL = 3
    DIVERGED = 4
    """Same (position, term), another chain: never truncated."""
    INCONSISTENT_LEADER = 5
    """Another node leads this term: must never happen."""


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Asks for a vote in ``term``. A pre-vote (WAIT_TO_REVOTE) asks whether one would be given, and changes nothing.

    ``transfer_leader_id`` names the leader that handed over in ``term`` − 1, and lifts stickiness at the voters that
    hear it.
    """

    group: str
    term: Term
    is_pre_vote: bool
    last_term: Term
    last_position: Position
    transfer_leader_id: NodeId = NOBODY


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """``term`` is the voter's own; ``request_term`` the one that was asked for. ``wall_clock_ms``: the voter's; 0: it
    does not say."""

    group: str
    term: Term
    is_pre_vote: bool
    request_term: Term
    result: VoteResult
    wall_clock_ms: int = 0


class Heartbeat(NamedTuple):
    """The leader is here. ``commit_position`` may lie beyond the follower's log. ``round`` is echoed.

    A tuple, as its answer is: a node with many groups makes thousands of them a second.
    """

    group: str
    term: Term
    commit_position: Position
    round: int


class HeartbeatResponse(NamedTuple):
    """``term`` above the leader's makes it step down.

    ``keeps_lease`` promises to vote for nobody for one ``election_timeout_min_ms`` from now, also over a restart.
    ``disk`` is the follower's own; ``wall_clock_ms`` its clock, since the epoch. ``may_vote``: it did not lose what it
    acknowledged, as far as it knows, or was caught up since.
    """

    group: str
    term: Term
    round: int
    keeps_lease: bool = False
    disk: DiskState = DiskState.OK
    wall_clock_ms: int = 0
    may_vote: bool = True


@dataclass(frozen=True, slots=True)
class Compare:
    """Does your log have this point? ``request_id`` is echoed: answers to older questions are dropped."""

    group: str
    term: Term
    point: LogPoint
    request_id: int

    def answered(self, term: Term, result: PushResult, there: LogPoint, *, admits_loss: bool) -> CompareResponse:
        """By a follower in ``term``, with the point ``there`` of its log."""
        return CompareResponse(self.group, term, result, there.position, there.term, self.request_id, admits_loss)


@dataclass(frozen=True, slots=True)
class CompareResponse:
    """SUCCESS: it does; ``position`` is the follower's last one. INCONSISTENT_STATE: compare at ``position``. It is the
    highest one at or below the point asked with a term, ``position_term``, that does not exceed the point's.

    ``admits_loss``: the follower knows that frames it acknowledged are damaged, or were given up. Until a leader has
    brought them back, it votes by its former end, or not at all if it does not know that end. So its disk need not
    be doubted because of ``position``.
    """

    group: str
    term: Term
    result: PushResult
    position: Position
    position_term: Term
    request_id: int
    admits_loss: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut everything behind ``point``, which COMPARE has just found equal."""

    group: str
    term: Term
    point: LogPoint
    request_id: int


@dataclass(frozen=True, slots=True)
class TruncateResponse:
    group: str
    term: Term
    result: PushResult
    request_id: int


@dataclass(frozen=True, slots=True)
class Append:
    """Consecutive frames, and how far the leader has committed."""

    group: str
    term: Term
    commit_position: Position
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class AppendResponse:
    """``position``: the follower's log is durable, and known to equal this leader's, up to here (cumulative).

    With INCONSISTENT_STATE: a push left a gap, or did not link; compare again.
    """

    group: str
    term: Term
    result: PushResult
    position: Position


@dataclass(frozen=True, slots=True)
class TakeLeadership:
    """From the leader to the one it hands over to: your log is complete, stand for ``term`` + 1 at once."""

    group: str
    term: Term
    position: Position


@dataclass(frozen=True, slots=True)
class Reset:
    """Your log ends before mine begins: begin anew behind the point of this small state (``LogSnapshot.encode``)."""

    group: str
    term: Term
    log_state: bytes
    request_id: int


@dataclass(frozen=True, slots=True)
class ResetResponse:
    """SUCCESS: the log now begins, and ends, where the state says. INCONSISTENT_STATE: it reaches further: compare."""

    group: str
    term: Term
    result: PushResult
    request_id: int


class FetchResult(IntEnum):
    """A node's answer to FETCH."""

    SUCCESS = 0
    BEHIND_END = 1
    """My log ends before that."""
    TRIMMED = 2
    """My log begins behind that."""
    DAMAGED = 3
    """I have it, and it is damaged here too; or I may have had it, and lost it."""
    OTHER_LOG = 4
    """My frames there do not follow the chain in the request."""
    BUSY = 5
    """I am answering you, or too many others: ask again later."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Any node to any other, in any role: give me your frames behind ``previous``, up to position ``last_wanted``,
    about ``max_bytes`` of them. It says nothing of terms and leaders: chains prove what is right."""

    group: str
    term: Term
    previous: LogPoint
    last_wanted: Position
    max_bytes: int
    request_id: int


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """SUCCESS: consecutive frames, the first right behind the point that was named; else there are none. ``start``,
    ``end``: what can be asked for lies between. ``voters``: by this log, as far as it goes. ``leads``: in this term."""

    group: str
    term: Term
    result: FetchResult
    request_id: int
    frames: tuple[Frame, ...] = ()
    end: LogPoint = GENESIS
    start: LogPoint = GENESIS
    voters: tuple[NodeId, ...] = ()
    leads: bool = False


@dataclass(frozen=True, slots=True)
class MachineReport:
    """How far the sender's state machine is, to the leader of the group: in the first place for handovers.

    ``next_index``: of the first record that is not in its state; 0: none is, or it is being restored. ``version``: the
    latest of the commands that it knows. ``digest``: its own, as of the BEGIN of checkpoint ``checkpoint_id``, to which
    it *applied* its way; empty: it has none."""

    group: str
    term: Term
    next_index: int
    version: int
    checkpoint_id: int
    digest: bytes


Message = (
    VoteRequest
    | VoteResponse
    | Heartbeat
    | HeartbeatResponse
    | Compare
    | CompareResponse
    | Truncate
    | TruncateResponse
    | Append
    | AppendResponse
    | TakeLeadership
    | Reset
    | ResetResponse
    | Fetch
    | FetchResponse
    | MachineReport
)
"""Of one group."""


@dataclass(frozen=True, slots=True)
class HeartbeatBatch:
    """The heartbeats of all groups that one node leads, sent to another node in one turn of the event loop.

    Each row counts for its own group, term and round alone.
    """

    rows: tuple[Heartbeat, ...]
    group: ClassVar[str] = ""
    term: ClassVar[Term] = Term(0)


@dataclass(frozen=True, slots=True)
class HeartbeatResponseBatch:
    """The answers, likewise. An answer confirms nothing but the group, the term and the round that its row names."""

    rows: tuple[HeartbeatResponse, ...]
    group: ClassVar[str] = ""
    term: ClassVar[Term] = Term(0)


PeerMessage = Message | HeartbeatBatch | HeartbeatResponseBatch
"""What travels between two nodes."""
