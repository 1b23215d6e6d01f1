"""The nodes on which a leader can rely: one measure for a majority, a stop and a handover.

::

    connected ─▶ heard lately ─▶ not in doubt ─▶ room on its disk ─▶ close to the leader ─▶ its state machine, too
    └────────────── it follows ─────────────┘                                         │                         │
    └────────────── it is fit for a majority that rests on it ────────────────────────┘                         │
    └────────────── it is fit to lead ──────────────────────────────────────────────────────────────────────────┘

A connection alone says little: it stays open for a while when a process stands still, or a machine was unplugged.
"Lately" means within the shortest election timeout, here as for check-quorum.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Self

from dledger.common.config import Limits, Timings
from dledger.common.types import DiskState, NodeStart


class Need(Enum):
    """The needs that a node may not meet, in the order in which they are checked. The value names the condition for
    which an operator waits."""

    CONNECTION = "connection"
    ANSWER = "answer"
    IDENTITY = "readmission"
    DISK = "disk"
    COMPARED = "compare"
    """Its log was not compared with this leader's yet: how far behind it is, nobody knows. It takes a round trip."""
    CATCH_UP = "catch_up"
    MACHINE = "state_machine"
    """Its state machine is not close to the log, or nobody has heard of it: it could not serve."""


class Lack(NamedTuple):
    """The first need that is not met, and the words about it: they go on where the node's id ends."""

    need: Need
    why: str


class MemberFacts(NamedTuple):
    """What the leader knows of another member."""

    is_connected: bool
    counts: bool
    """Whether quorums may rest on it: its disk is not in doubt."""
    lag_frames: int | None
    """The leader's last position minus what the member holds durably; None before both logs were compared."""
    lag_ms: float = 0.0
    """For how long the leader has had some of these frames, at least; 0 while it lacks none that the leader noted."""
    silent_ms: float = 0.0
    """Since it was last heard."""
    disk: DiskState = DiskState.OK
    """By its own word."""
    may_vote: bool = True
    """By its own word."""
    start: NodeStart | None = None
    """As it last said hello; None before it ever did."""
    machine_lag: int | None = 0
    """How many committed records its state machine lacked when it last reported; None: it has not reported lately.
    0 in a group without a state machine."""


UNHEARD = MemberFacts(is_connected=False, counts=False, lag_frames=None)


class Measure(NamedTuple):
    """What is asked of a node."""

    max_silence_ms: float
    max_lag_frames: int
    max_lag_ms: float
    """Frames may be large. A node that lacks frames written longer ago takes long to catch up, however few they are."""

    @classmethod
    def of(cls, limits: Limits, timings: Timings) -> Self:
        return cls(timings.election_timeout_min_ms, limits.max_transfer_lag_frames, timings.election_timeout_max_ms)

    def lack(self, facts: MemberFacts) -> Lack | None:
        """None: it is fit, as a voter that a majority needs and as the next leader."""
        if not facts.is_connected:
            return Lack(Need.CONNECTION, "is not connected")
        if self.is_silent(facts.silent_ms):
            return Lack(Need.ANSWER, f"has not answered for {facts.silent_ms / 1000:.1f} s")
        if not facts.counts:
            return Lack(Need.IDENTITY, "is in doubt, its disk is not the one that was admitted")
        if not facts.disk.takes_appends:
            return Lack(Need.DISK, "has a full disk" if facts.disk is DiskState.FULL else "has a disk that hangs")
        lack = self._lag(facts.lag_frames, facts.lag_ms)
        if lack is None and not facts.may_vote:
            return Lack(
                Need.CATCH_UP, "does not vote yet: it may lack what its disk, or the one before it, acknowledged"
            )
        return lack

    def lack_to_lead(self, facts: MemberFacts) -> Lack | None:
        """None: it is fit to lead."""
        lack = self.lack(facts)
        if lack is not None:
            return lack
        if facts.machine_lag is None:
            return Lack(Need.MACHINE, "has not told lately how far its state machine is")
        if facts.machine_lag > self.max_lag_frames:
            return Lack(
                Need.MACHINE,
                f"has a state machine that is {facts.machine_lag} records behind, {self.max_lag_frames} are allowed",
            )
        return None

    def _lag(self, lag_frames: int | None, lag_ms: float) -> Lack | None:
        if lag_frames is None:
            return Lack(Need.COMPARED, "was not compared with the leader yet")
        if lag_frames > self.max_lag_frames:
            return Lack(Need.CATCH_UP, f"is {lag_frames} frames behind, {self.max_lag_frames} are allowed")
        if lag_frames > 0 and lag_ms > self.max_lag_ms:
            old = f"some of them written more than {self.max_lag_ms / 1000:g} s ago"
            return Lack(Need.CATCH_UP, f"is {lag_frames} frames behind, {old}")
        return None

    def follows(self, facts: MemberFacts) -> bool:
        """Whether it may yet acknowledge the frames written by now: it takes as many as it has room for, and catches
        up."""
        lack = self.lack(facts)
        return lack is None or lack.need in (Need.DISK, Need.COMPARED, Need.CATCH_UP)

    def is_silent(self, silent_ms: float) -> bool:
        return silent_ms >= self.max_silence_ms
