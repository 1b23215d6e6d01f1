"""The words everything else is written in: ids, the two ways of counting, roles, and what readers and writers get back.

Two numbers count what is in the log, and they never mix:

* a **position** counts frames of any kind, +1 a frame, from 1. It is Raft's own index: votes, matching, commit and
  truncation use positions only. 0 is "before the first frame".
* an **index** counts users' records, from 0. A frame of ``count`` records takes ``count`` of them; control frames take
  none, so users never see a gap. −1 is "no record yet".
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum
from typing import NamedTuple, NewType

from dledger.common.errors import InvalidRequest, quoted

NodeId = NewType("NodeId", str)
Term = NewType("Term", int)
Position = NewType("Position", int)
Index = NewType("Index", int)

DEFAULT_GROUP = "default"
META_GROUP = "meta"
"""Holds the directory of groups: the only group that is founded from a configuration."""
_GROUP_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
MAX_INDEX = (1 << 63) - 1
"""The last index there can be."""
MAX_START_NONCES = 256
"""A node keeps the nonces of so many of its last starts. A peer that missed more starts cannot tell any more whether
the newest one follows from the start it knows."""


def check_group_name(name: str) -> None:
    """Raises UNEXPECTED_ARGUMENT unless a group may be called ``name``."""
    if not _GROUP_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{quoted(name)} is not a group name: use 1 to 64 letters, digits, '-' and '_', not '-' first"
        )


def group_key(name: str, group_id: int) -> str:
    """The key of a group, in messages between nodes and in their directories: a different one for each group that ever
    was."""
    return name if name in (META_GROUP, DEFAULT_GROUP) else f"{name}.{group_id}"


def id_of(key: str) -> int | None:
    """The id in a group's key; None for the groups that cannot be removed."""
    _, dot, number = key.rpartition(".")
    return int(number) if dot else None


def name_in(key: str) -> str:
    """The name in a group's key."""
    return key.rpartition(".")[0] or key


def is_key_of(key: str, name: str) -> bool:
    """Whether ``key`` belongs to a group called ``name``; ``name`` may also be the key itself."""
    return name in (key, name_in(key))


class Role(Enum):
    """What a node is in one group. Every node starts as a follower; a learner replicates and does not vote."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    LEARNER = "learner"


class Durability(Enum):
    """When a node counts a frame as its own copy.

    * ``FSYNC``: after fdatasync. An acknowledged append survives the power loss of every node at once.
    * ``INTERVAL``: after the write; fdatasync follows in the background. Survives the crash of every process, and the
      power loss of any minority.
    * ``NONE``: after the write; the operating system syncs when it likes. As ``INTERVAL``, with a longer tail at risk.
    """

    FSYNC = "fsync"
    INTERVAL = "interval"
    NONE = "none"


class DiskState(IntEnum):
    """The use of a node's disk, in the order of severity; group/disk_watch.py tells the consequences."""

    OK = 0
    LOW = 1
    FULL = 2
    HUNG = 3

    @property
    def word(self) -> str:
        return self.name.lower()

    @property
    def takes_appends(self) -> bool:
        """Whether a node with such a disk is one to lead."""
        return self < DiskState.FULL


class Consistency(Enum):
    """What a read is promised: every append acknowledged before it, or the committed prefix the node knows of."""

    LINEARIZABLE = "linearizable"
    COMMITTED = "committed"


class LogPoint(NamedTuple):
    """Names one frame and everything before it: two logs are equal up to ``position`` iff the chains there are."""

    position: Position
    term: Term
    chain: int


GENESIS = LogPoint(Position(0), Term(0), 0)
"""The point before the first frame of every log."""


class Ack(NamedTuple):
    """A committed append: the record's index, the term it was written in, and the log's time in ms since the epoch."""

    index: int  # type: ignore[assignment]  # a field, not tuple.index
    term: int
    timestamp_ms: int


class Entry(NamedTuple):
    """A committed record."""

    index: int  # type: ignore[assignment]  # a field, not tuple.index
    term: int
    timestamp_ms: int
    value: bytes


class Member(NamedTuple):
    """One node of a group, as the log knows it."""

    id: NodeId
    peer_address: str
    voter: bool = True
    node_uuid: bytes = b""
    """The only disk to be trusted under this id; empty: whichever was met first."""
    admitted_start_count: int = 0
    """The start of the disk ``uuid`` admitted by a change of the members: earlier starts are not trusted. 0: no change
    admitted it; the leader knew that disk when it made another change."""
    admitted_start_nonce: int = 0
    """Of that start; 0: any."""


class NodeStart(NamedTuple):
    """One start of one disk."""

    node_uuid: bytes
    """Minted with the data directory."""
    start_count: int
    """Raised durably by every start."""
    start_nonces: tuple[int, ...]
    """Drawn by the last starts, in order; this one's is the last."""

    def nonce_of(self, start_count: int) -> int | None:
        """Of an earlier start of this disk, or of this one. None: too long ago, or never."""
        back = self.start_count - start_count
        return self.start_nonces[-1 - back] if 0 <= back < len(self.start_nonces) else None


class PreferredLeader(NamedTuple):
    """The higher the priority, the sooner; a node that is not named has 0."""

    id: NodeId
    priority: int


class GroupSettings(NamedTuple):
    """What the whole group agrees on, carried by the log."""

    preferred: tuple[PreferredLeader, ...] = ()
    retention_max_age_ms: int = 0
    """Records older than this may go; 0: kept for ever."""
    retention_max_bytes: int = 0
    """A log larger than this loses its oldest segments; 0: no limit."""
    machine: str = ""
    """The state machine that owns this log: nobody else appends to it or trims it. Empty: none."""
    is_sealed: bool = False
    """No record is appended any more, for good: the group is being removed."""

    def priority_of(self, node_id: NodeId) -> int:
        return next((each.priority for each in self.preferred if each.id == node_id), 0)


class TrimPoint(NamedTuple):
    """Where a log begins: behind the frame ``point``, with record ``first_index``."""

    point: LogPoint
    first_index: int
