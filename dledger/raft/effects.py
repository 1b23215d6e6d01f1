"""What the core wants done. The shell does it strictly in this order; ``Persist`` holds back all that follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dledger.common.types import NodeId, Position, Role, Term
from dledger.raft.messages import Message


@dataclass(frozen=True, slots=True)
class Persist:
    """Make term and vote durable before anything after this is done: persist, then speak."""

    term: Term
    vote: NodeId


class Send(NamedTuple):
    to: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """The role changed, or only the term or the known leader. A new leader appends its no-op at once."""

    role: Role
    term: Term
    leader_id: NodeId


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything up to ``position`` is committed, for ever."""

    position: Position


@dataclass(frozen=True, slots=True)
class ReadsConfirmed:
    """A quorum answered ``round``: the node led when the round began, and reads gathered before may be served."""

    round: int


@dataclass(frozen=True, slots=True)
class FetchTail:
    """``peer`` has frames behind the end of this log, for which it refuses its vote. They are to be fetched from it,
    and appended for as long as ``RaftNode.takes_tail``."""

    peer: NodeId


@dataclass(frozen=True, slots=True)
class TransferEnded:
    """The handover came to its end; ``new_leader_id`` is empty when it failed and this node leads on."""

    new_leader_id: NodeId


Effect = Persist | Send | RoleChanged | Committed | ReadsConfirmed | FetchTail | TransferEnded
