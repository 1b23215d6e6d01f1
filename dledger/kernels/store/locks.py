"""Locks by their fencing tokens. A lock by a lease is no lock: its holder may be stopped, and go on when another one
has it. So each holder has a token, greater than those before, and a resource takes no write with an older one.

The token is the revision of the creation of the holder's key. The holder with the least token has the lock. It
**holds** the lock from the revision of the answer to that effect, until its key is gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from dledger.kernels.history import OK
from dledger.kernels.kernel import Findings

MOST_EXAMPLES = 5
VIOLATIONS = ("shared_tokens", "out_of_turn", "fallen_tokens", "two_holders", "unheld_writes")


class Holding(NamedTuple):
    """A client was told: it has the lock."""

    id: int
    lock: str
    token: int
    revision: int
    """Of the answer to that effect."""
    holder: int
    """The process."""


@dataclass(frozen=True, slots=True)
class FencedWrite:
    """A write to the lock's resource under a token."""

    id: int
    lock: str
    token: int
    outcome: str
    is_accepted: bool = False
    revision: int = 0
    """Of its acceptance."""


def check_locks(holdings: Iterable[Holding], writes: Iterable[FencedWrite]) -> Findings:
    """Of all locks.

    * shared_tokens: two holders have one token;
    * out_of_turn: one held the lock before another one with a lesser token had it;
    * fallen_tokens: a write was accepted after one with a greater token;
    * two_holders: a write was accepted when a holder with a greater token had the lock already;
    * unheld_writes: a write was accepted before its client was told of the lock.
    """
    found, holdings, writes = _Found(), list(holdings), list(writes)
    accepted = [each for each in writes if each.outcome == OK and each.is_accepted]
    for lock in {each.lock for each in holdings}:
        mine = sorted((each for each in holdings if each.lock == lock), key=lambda each: each.token)
        _judge_turns(mine, found)
        _judge_writes(mine, sorted((each for each in accepted if each.lock == lock), key=_revision), found)
    counts = {
        "holdings": len(holdings),
        "fenced_writes": len(accepted),
        "fenced_off": sum(each.outcome == OK and not each.is_accepted for each in writes),
    }
    return Findings(counts, found.numbers, tuple(found.examples))


class _Found:
    def __init__(self) -> None:
        self.numbers = dict.fromkeys(VIOLATIONS, 0)
        self.examples: list[str] = []

    def against(self, violation: str, *involved: Holding | FencedWrite) -> None:
        self.numbers[violation] += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(f"{violation}: {'; '.join(map(str, involved))}")


def _revision(each: FencedWrite) -> int:
    return each.revision


def _judge_turns(mine: Sequence[Holding], found: _Found) -> None:
    """In the order of their tokens."""
    for before, after in pairwise(mine):
        if before.token == after.token and before.holder != after.holder:
            found.against("shared_tokens", before, after)
        elif before.token < after.token and after.revision < before.revision:
            found.against("out_of_turn", before, after)


def _judge_writes(mine: Sequence[Holding], accepted: Sequence[FencedWrite], found: _Found) -> None:
    """``accepted`` in the order of their revisions."""
    tokens = [each.token for each in mine]
    highest: FencedWrite | None = None
    for write in accepted:
        if highest is not None and write.token < highest.token:
            found.against("fallen_tokens", highest, write)
        if highest is None or write.token > highest.token:
            highest = write
        place = bisect_left(tokens, write.token)
        if place == len(tokens) or tokens[place] != write.token or mine[place].revision > write.revision:
            found.against("unheld_writes", write)
        later = min((each for each in mine[place:] if each.token > write.token), key=_told_at, default=None)
        if later is not None and later.revision < write.revision:
            found.against("two_holders", later, write)


def _told_at(holding: Holding) -> int:
    return holding.revision
