"""Histories of registers: random ones that a store may have given, and a judge that tries every order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from dledger.kernels.store.register import (
    FAIL,
    FOREVER,
    INFO,
    OK,
    Answer,
    Expectation,
    Kind,
    Operation,
    Pair,
    Target,
    after,
    agrees,
    changes,
)

KEYS = ("a", "b")
State = tuple[Pair | None, ...]


def may_be_linearizable(operations: Sequence[Operation]) -> bool:
    """By trying every order, and every revision for each operation of unknown outcome."""
    mine = [each for each in operations if each.outcome == OK or (each.outcome == INFO and each.writes)]
    answers = [each.answer.revision for each in mine if each.answer is not None]
    last = max(answers, default=1) + 1
    entered: set[tuple[frozenset[int], int, State]] = set()

    def go(left: frozenset[int], revision: int, state: State) -> bool:
        if all(mine[place].outcome == INFO for place in left):
            return True
        if (left, revision, state) in entered:
            return False
        entered.add((left, revision, state))
        first_end = min((mine[place].ends_ns for place in left), default=FOREVER)
        return any(
            go(left - {place}, at, behind)
            for place in left
            if mine[place].begins_ns <= first_end
            for at, behind in outcomes(mine[place], revision, state, last)
        )

    return go(frozenset(range(len(mine))), 0, (None,) * len(KEYS))


def outcomes(operation: Operation, revision: int, state: State, last: int) -> list[tuple[int, State]]:
    """The revisions and the states that there may be behind it."""
    place = KEYS.index(operation.key)
    pair = state[place]
    if operation.answer is None:
        if not changes(operation, pair):
            return []
        revisions: Sequence[int] = range(revision + 1, last + 1)
    elif agrees(operation, pair) and revision <= operation.answer.revision - operation.answer.changed:
        if not operation.answer.changed:
            return [(operation.answer.revision, state)]
        revisions = [operation.answer.revision]
    else:
        return []
    return [(at, (*state[:place], after(operation, pair, at), *state[place + 1 :])) for at in revisions]


class Maker:
    """Carries out random operations on a store in memory, one after the other, and tells of them as their clients
    would: each somewhere within its time, some without an answer."""

    def __init__(self, seed: int, count: int, *, unknown: float = 0.3, shown: float = 0.7) -> None:
        self._random = Random(seed)
        self._count = count
        self._unknown = unknown
        self._shown = shown
        self._revision = 1
        self._state: dict[str, Pair | None] = dict.fromkeys(KEYS)
        self._past: list[tuple[int, dict[str, Pair | None]]] = [(1, dict(self._state))]

    def history(self) -> list[Operation]:
        return [self._operation(number) for number in range(self._count)]

    def _operation(self, number: int) -> Operation:
        random = self._random
        if random.random() < 0.1:
            self._revision += 1  # somebody else's key
        kind = random.choice([Kind.GET, Kind.PUT, Kind.PUT, Kind.DELETE, Kind.CAS])
        key = random.choice(KEYS)
        pair = self._state[key]
        at = 10 * number + 50
        is_serializable = kind is Kind.GET and random.random() < 0.3
        operation = Operation(
            number,
            kind,
            key,
            invoked_ns=at - random.randrange(25),
            completed_ns=at + random.randrange(25),
            value=f"v{number}" if kind in (Kind.PUT, Kind.CAS) else "",
            expects=self._expectation(pair) if kind is Kind.CAS else None,
            is_serializable=is_serializable,
        )
        if is_serializable:
            revision, state = random.choice(self._past)
            return replace(operation, answer=Answer(revision, changed=False, before=state[key]))
        is_unknown = random.random() < self._unknown
        if is_unknown and random.random() < 0.4:
            return replace(operation, outcome=random.choice([INFO, FAIL]))
        changed = changes(operation, pair)
        if changed:
            self._revision += 1
            self._state[key] = after(operation, pair, self._revision)
            self._past.append((self._revision, dict(self._state)))
        if is_unknown:
            return replace(operation, outcome=INFO)
        shows = kind is Kind.GET or random.random() < self._shown
        return replace(operation, answer=Answer(self._revision, changed, pair if shows else None, shows))

    def _expectation(self, pair: Pair | None) -> Expectation:
        target = self._random.choice([Target.MOD, Target.VERSION, Target.CREATE, Target.VALUE])
        if target is Target.VALUE:
            return Expectation(target, pair.value if pair and self._random.random() < 0.7 else "v0")
        operand = getattr(pair, target.value) if pair and self._random.random() < 0.7 else self._random.randrange(4)
        return Expectation(target, operand)


def spoiled(history: Sequence[Operation], random: Random) -> list[Operation]:
    """One operation of it told otherwise: often that makes the history a wrong one."""
    place = random.randrange(len(history))
    spoilt = list(history)
    each = spoilt[place]
    answer = each.answer
    if answer is None or random.random() < 0.3:
        moved = random.choice([-40, -20, 20, 40])
        spoilt[place] = replace(each, invoked_ns=each.invoked_ns + moved, completed_ns=each.completed_ns + moved)
        return spoilt
    how = random.randrange(5)
    if how == 0:
        answer = answer._replace(revision=max(1, answer.revision + random.choice([-2, -1, 1])))
    elif how == 1:
        answer = answer._replace(changed=not answer.changed)
    elif how == 2:
        others = [other.answer.before for other in history if other.answer is not None]
        answer = answer._replace(before=random.choice(others))
    elif how == 3 and answer.before is not None:
        field = random.choice(["create", "mod", "version"])
        answer = answer._replace(before=Pair(**answer.before._asdict() | {field: random.randrange(1, 8)}))
    else:
        spoilt[place] = replace(each, outcome=FAIL, answer=None)
        return spoilt
    spoilt[place] = replace(each, answer=answer)
    return spoilt
