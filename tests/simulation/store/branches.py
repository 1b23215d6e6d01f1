"""What a run over many seeds of the store must have met: see ``tests/simulation/branches.py``."""

from __future__ import annotations

from tests.simulation.branches import ENOUGH_FOR_THE_SELDOM, ENOUGH_SEEDS, Named

FAULTS = (
    "clock drift",
    "damaged state",
    "kill",
    "lagging state",
    "leader at a standstill",
    "leader isolated",
    "message lost",
    "one-way cut",
    "partition",
    "pause",
    "power cut",
    "sectors lost",
    "slow link",
    "transfer",
)
BRANCHES = (
    "call not sent",
    "call to the leader",
    "call without an answer",
    "checkpoint confirmed",
    "command of no session",
    "end of no lease",
    "first answer again",
    "keepalive of no lease",
    "keepalive unanswered",
    "lease expired",
    "lease kept alive",
    "lease revoked",
    "reset",
    "retried command",
    "session made room",
    "store COMPACTED",
    "store LEASE_EXISTS",
    "store LEASE_NOT_FOUND",
    "store SESSION_EXPIRED",
    "store read COMPACTED",
    "store read FUTURE_REVISION",
    "store refused NOT_LEADER",
    "store write unknown",
    "watch closed",
    "watch compacted",
    "watch ended",
    "watch fragment",
    "watch progress asked for",
    "watch told",
)
SELDOM_BRANCHES = ("command of an earlier term",)
OF_THE_STORE = (Named(ENOUGH_SEEDS, FAULTS, BRANCHES), Named(ENOUGH_FOR_THE_SELDOM, (), SELDOM_BRANCHES))
