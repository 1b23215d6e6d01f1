"""What a run over many seeds must have met: each kind of fault, and each branch of the product that has a name here.

A zero among them says that the simulator, or the product, has lost something. What one seed in hundreds meets is asked
for over all the seeds of the proof alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

LOGGED = {
    "a member is not what it was; no quorum rests on it": "branch doubt",
    "a member is what it should be again": "branch doubt lifted",
    "handing the leadership over": "branch preferred leader",
    "the disk's state changed": "branch disk watch",
    "damaged frames were repaired": "branch repaired",
    "the others were asked for what followed the end of this log; voting again": "branch tail asked for",
    "this log is not complete enough to lead, and nobody else does; asking for what it lacks": "branch tail fetched",
    "a segment cannot be sealed": "branch seal failed",
    "a small state has no room": "branch small state without room",
}
"""What the product logs when it takes a branch worth counting."""

FAULTS = (
    "EIO at an operation",
    "EIO at a read",
    "add learner",
    "bridge",
    "change in vain",
    "clean stop",
    "clock drift",
    "clock jump",
    "completion out of order",
    "damaged state",
    "connection reset",
    "failed fdatasync",
    "founder with another disk",
    "full disk",
    "hasty change",
    "hung disk",
    "kill",
    "kill at an operation",
    "late completion",
    "leader isolated",
    "message cut off",
    "message doubled",
    "message late",
    "message lost",
    "message out of order",
    "one-way cut",
    "partition",
    "pause",
    "power cut",
    "power cut amid a cut",
    "power cut at an operation",
    "power cut of all",
    "power cut of two",
    "member back",
    "preferred",
    "promote",
    "readmit",
    "remove",
    "retention",
    "ring",
    "rotten slot",
    "sectors lost",
    "slow disk",
    "slow link",
    "successor unheard",
    "torn sector",
    "transfer",
    "trim",
)
BRANCHES = (
    "WAIT_TO_REVOTE",
    "WAIT_TO_REVOTE ACCEPT",
    "WAIT_TO_REVOTE ALREADY_HAS_LEADER",
    "WAIT_TO_REVOTE EXPIRED_VOTE_TERM",
    "WAIT_TO_VOTE_NEXT",
    "WAIT_TO_VOTE_NEXT ACCEPT",
    "WAIT_TO_VOTE_NEXT ALREADY_VOTED",
    "append refused DISK_ERROR",
    "append refused DISK_FULL",
    "check-quorum",
    "checkpoint complete",
    "checkpoint confirmed",
    "command unknown",
    "committed MEMBERSHIP",
    "committed NO_OP",
    "committed PRODUCER",
    "committed SETTINGS",
    "committed TRIM",
    "compare INCONSISTENT_STATE",
    "compare SUCCESS",
    "contest won",
    "damaged state built anew",
    "disk watch",
    "doubt",
    "doubt lifted",
    "duplicate answered",
    "founded alone",
    "group made",
    "grown from one",
    "lease read",
    "liveness of a majority",
    "member demoted",
    "member promoted",
    "member removed",
    "members changed",
    "node stopped DISK_ERROR",
    "outcome unknown",
    "preferred leader",
    "push DISK_FULL",
    "push SUCCESS",
    "read-index round",
    "recovery",
    "refused NOT_LEADER",
    "refused OUT_OF_ORDER",
    "refused PRODUCER_FENCED",
    "refused TERM_CHANGED",
    "refused WRONG_EXPECTED_INDEX",
    "repaired",
    "reset",
    "retried command",
    "tail asked for",
    "tail cut",
    "tail fetched",
    "take",
    "trim",
    "trim by hand",
    "truncate",
    "truncate SUCCESS",
)
ENOUGH_SEEDS = 100
"""So many must meet every kind of fault, and take every branch, that is named above. One seed in ten meets each of
them, so a hundred seeds do, whichever commit they come from."""

SELDOM_FAULTS = (
    "bit flip",
    "debt in every group",
    "group removed",
    "group removed while a node is away",
    "learner that stays",
    "minority asked",
    "misdirected sector",
    "old backup",
    "rot where logs part",
    "rotten tail",
    "stale sector",
    "unreadable page",
    "wiped disk",
)
SELDOM_BRANCHES = (
    "checkpoint of a damaged state",
    "damaged log cut",
    "damaged start",
    "dropped group opened again",
    "group removed",
    "group stopped DISK_ERROR",
    "late opening refused",
    "members taken back",
    "replica dropped",
    "reset SUCCESS",
    "session ended",
    "stale completion",
    "trim by age",
    "trim by size",
    "unreadable page written anew",
)
ENOUGH_FOR_THE_SELDOM = 2_000

RARE_FAULTS = ("rot of both copies", "rotten disk replaced")
RARE_BRANCHES = (
    "WAIT_TO_REVOTE EXPIRED_LEDGER_TERM",
    "WAIT_TO_REVOTE NOT_A_VOTER",
    "WAIT_TO_REVOTE NOT_FOUNDED",
    "WAIT_TO_REVOTE SMALL_LEDGER_END_INDEX",
    "WAIT_TO_REVOTE UNKNOWN_LEADER",
    "WAIT_TO_VOTE_NEXT ALREADY_HAS_LEADER",
    "WAIT_TO_VOTE_NEXT EXPIRED_LEDGER_TERM",
    "WAIT_TO_VOTE_NEXT EXPIRED_VOTE_TERM",
    "WAIT_TO_VOTE_NEXT NOT_A_VOTER",
    "WAIT_TO_VOTE_NEXT NOT_FOUNDED",
    "WAIT_TO_VOTE_NEXT SMALL_LEDGER_END_INDEX",
    "WAIT_TO_VOTE_NEXT UNKNOWN_LEADER",
    "append refused TERM_CHANGED",
    "compare EXPIRED_TERM",
    "push EXPIRED_TERM",
    "push INCONSISTENT_STATE",
    "refused DISK_ERROR",
    "refused DISK_FULL",
    "refused LEADER_NOT_READY",
    "refused LEADER_TRANSFERRING",
    "refused SHUTTING_DOWN",
    "refused WAIT_QUORUM_ACK_TIMEOUT",
    "reset DISK_FULL",
    "reset INCONSISTENT_STATE",
    "seal failed",
    "small state without room",
    "start refused CORRUPT_LOG",
    "start refused DISK_ERROR",
    "start refused DISK_FULL",
    "stepped aside",
    "truncate INCONSISTENT_STATE",
)
ENOUGH_FOR_THE_RARE = 20_000


class Named(NamedTuple):
    """What so many seeds must have met."""

    seeds: int
    faults: tuple[str, ...]
    branches: tuple[str, ...]


OF_THE_LOG = (
    Named(ENOUGH_SEEDS, FAULTS, BRANCHES),
    Named(ENOUGH_FOR_THE_SELDOM, SELDOM_FAULTS, SELDOM_BRANCHES),
    Named(ENOUGH_FOR_THE_RARE, RARE_FAULTS, RARE_BRANCHES),
)


def missing(hits: Counter[str], seeds: int, named: Iterable[Named] = OF_THE_LOG) -> list[str]:
    """What should have been met in so many seeds, and never was."""
    asked = [each for each in named if seeds >= each.seeds]
    faults = [f"fault {name}" for each in asked for name in each.faults]
    branches = [f"branch {name}" for each in asked for name in each.branches]
    return [name for name in (*faults, *branches) if not hits[name]]
