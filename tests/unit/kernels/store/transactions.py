"""Histories of transactions on lists: random ones that a store may have given, and a judge that tries every order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from dledger.kernels.history import FAIL, INFO, OK
from dledger.kernels.store.appends import Append, Read, Step, Transaction
from dledger.kernels.store.register import FOREVER

KEYS = ("x", "y")
Lists = dict[str, tuple[str, ...]]


def may_be_serializable(transactions: Sequence[Transaction]) -> bool:
    """Strictly: by trying every order that the times allow. Of unknown outcome, any may be left out."""
    mine = [each for each in transactions if each.outcome != FAIL]

    def go(left: frozenset[int], lists: Lists) -> bool:
        if all(mine[place].outcome == INFO for place in left):
            return True
        first_end = min(_end(mine[place]) for place in left)
        for place in left:
            if mine[place].invoked_ns <= first_end:
                behind = _carried_out(mine[place], lists)
                if behind is not None and go(left - {place}, behind):
                    return True
        return False

    return go(frozenset(range(len(mine))), dict.fromkeys(KEYS, ()))


def _end(transaction: Transaction) -> int:
    return transaction.completed_ns if transaction.outcome == OK else FOREVER


def _carried_out(transaction: Transaction, lists: Lists) -> Lists | None:
    """The lists behind it; None if it would have read something else."""
    lists = dict(lists)
    for step in transaction.steps:
        if isinstance(step, Append):
            lists[step.key] = (*lists[step.key], step.element)
        elif transaction.outcome == OK and step.elements != lists[step.key]:
            return None
    return lists


class Maker:
    """Carries out random transactions one after the other, and tells of them as their clients would: each somewhere
    within its time, some without an answer. The last one reads everything."""

    def __init__(self, seed: int, count: int, *, unknown: float = 0.2) -> None:
        self._random = Random(seed)
        self._count = count
        self._unknown = unknown
        self._lists: Lists = dict.fromkeys(KEYS, ())
        self._elements = 0

    def history(self) -> list[Transaction]:
        told = [self._transaction(number) for number in range(self._count)]
        reads = tuple(Read(key, self._lists[key]) for key in KEYS)
        return [*told, Transaction(self._count, reads, 10 * self._count + 200, 10 * self._count + 201)]

    def _transaction(self, number: int) -> Transaction:
        random = self._random
        is_unknown = random.random() < self._unknown
        is_done = not is_unknown or random.random() < 0.5
        lists = dict(self._lists)
        steps: list[Step] = []
        for _ in range(random.randrange(1, 4)):
            key = random.choice(KEYS)
            if random.random() < 0.5:
                steps.append(Read(key, lists[key]))
            else:
                self._elements += 1
                steps.append(Append(key, f"e{self._elements}"))
                lists[key] = (*lists[key], f"e{self._elements}")
        if is_done:
            self._lists = lists
        at = 10 * number + 50
        outcome = OK if not is_unknown else INFO if is_done else random.choice([INFO, FAIL])
        if outcome != OK:
            steps = [step for step in steps if isinstance(step, Append)]
        return Transaction(number, tuple(steps), at - random.randrange(25), at + random.randrange(25), outcome)


def spoiled(history: Sequence[Transaction], random: Random) -> list[Transaction]:
    """One of its transactions, but for the last one, told otherwise."""
    spoilt = list(history)
    place = random.randrange(max(1, len(spoilt) - 1))
    each = spoilt[place]
    steps = list(each.steps)
    how = random.randrange(3)
    if how == 0 or not steps:
        moved = random.choice([-40, -20, 20, 40])
        spoilt[place] = replace(each, invoked_ns=each.invoked_ns + moved, completed_ns=each.completed_ns + moved)
        return spoilt
    at = random.randrange(len(steps))
    step = steps[at]
    if isinstance(step, Append):
        spoilt[place] = replace(each, outcome=random.choice([OK, FAIL]))
        return spoilt
    others = [read.elements for other in history for read in other.steps if isinstance(read, Read)]
    cut = step.elements[: random.randrange(len(step.elements) + 1)]
    steps[at] = Read(step.key, random.choice([*others, cut, cut, step.elements[::-1], step.elements[1:]]))
    spoilt[place] = replace(each, steps=tuple(steps))
    return spoilt
