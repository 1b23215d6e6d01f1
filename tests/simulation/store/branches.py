"""What a run over many seeds of the store must have met: see ``tests/simulation/branches.py``."""

from __future__ import annotations

from tests.simulation.branches import ENOUGH_SEEDS, Named

FAULTS = (
    "clock drift",
    "damaged state",
    "kill",
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
    "reset",
    "retried command",
    "store COMPACTED",
    "store read COMPACTED",
    "store read FUTURE_REVISION",
    "store refused NOT_LEADER",
    "store write unknown",
)
OF_THE_STORE = (Named(ENOUGH_SEEDS, FAULTS, BRANCHES),)
