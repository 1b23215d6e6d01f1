"""Places operations without a rank so that a key's answers are right. ``linearizable`` asks for it.

It is a search as of Wing and Gong, with the memory of Lowe's and Knossos's. The operations with a rank are in order:
the **chain**. A position is (the next of the chain, the unknown operations placed so far, the key's pair, the last
revision). The search enters no position a second time after it found nothing behind it. Some rules keep positions few,
and lose no solution:

* The next of the chain may show the pair before it. If the key has this pair now, no unknown operation is placed there.
  The pair behind it is the same either way, and more unknown operations are left.
* An unknown operation without an effect is never placed.
* Deletes are alike but for their invocations, and so are puts, if no operation compares with their values. The search
  places the one with the first invocation.
* An unknown operation takes a revision without another change. Within one key, its number matters only if an answer, or
  an expectation, names it. So the search tries the named ones, and the least of the others.

Keys meet only in the revisions of their unknown operations. Each is searched by itself first. Then the solutions are
put together so that no revision is taken twice: there, the search tries every revision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum, auto
from itertools import islice
from typing import NamedTuple

from dledger.kernels.store.register import Kind, Operation, Pair, Target, after, agrees, changes

BUDGET = 200_000
"""So many positions more than the chain has operations the search of one key enters before it gives up. So many again
put the keys together."""


class Placed(NamedTuple):
    """An operation with a rank."""

    operation: Operation
    revision: int
    changed: bool

    @property
    def rank(self) -> int:
        return 2 * self.revision + (not self.changed)


class Doubt(NamedTuple):
    """An operation without a rank. It takes a revision behind ``floor``, which was known when it was invoked."""

    operation: Operation
    floor: int


class Verdict(Enum):
    POSSIBLE = auto()
    IMPOSSIBLE = auto()
    UNDECIDED = auto()


KeyInDoubt = tuple[Sequence[Placed], Sequence[Doubt]]


class _OutOfBudgetError(Exception):
    """The search has entered as many positions as it may."""


def solve(keys: Mapping[str, KeyInDoubt], taken: AbstractSet[int], budget: int = BUDGET) -> dict[str, Verdict]:
    """``taken``: the revisions of all operations with a rank and a change, of every key."""
    named = frozenset().union(*(_named(*each) for each in keys.values()))
    verdicts = {key: _alone(each, taken, named, _Purse(budget + len(each[0]))) for key, each in keys.items()}
    possible = [key for key, verdict in verdicts.items() if verdict is Verdict.POSSIBLE]
    try:
        lengths = sum(len(keys[key][0]) for key in possible)
        if not _together([keys[key] for key in possible], taken, _Purse(budget + lengths)):
            verdicts |= dict.fromkeys(possible, Verdict.IMPOSSIBLE)
    except _OutOfBudgetError:
        verdicts |= dict.fromkeys(possible, Verdict.UNDECIDED)
    return verdicts


def _alone(key: KeyInDoubt, taken: AbstractSet[int], named: AbstractSet[int], purse: _Purse) -> Verdict:
    try:
        found = next(_Search(key, taken, purse, named).solutions(), None)
    except _OutOfBudgetError:
        return Verdict.UNDECIDED
    return Verdict.IMPOSSIBLE if found is None else Verdict.POSSIBLE


def _together(keys: Sequence[KeyInDoubt], taken: AbstractSet[int], purse: _Purse) -> bool:
    """Whether all keys have solutions without a common revision."""
    if not keys:
        return True
    return any(_together(keys[1:], taken | solution, purse) for solution in _Search(keys[0], taken, purse).solutions())


def _named(chain: Sequence[Placed], doubts: Sequence[Doubt]) -> Iterator[int]:
    """The revisions named by answers and expectations."""
    for operation in (*(each.operation for each in chain), *(each.operation for each in doubts)):
        answer, expects = operation.answer, operation.expects
        if answer is not None and answer.before is not None:
            yield from (answer.before.create, answer.before.mod)
        if expects is not None and expects.target in (Target.CREATE, Target.MOD):
            yield int(expects.operand)


class _Purse:
    def __init__(self, budget: int) -> None:
        self._left = budget

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _OutOfBudgetError


class _Position(NamedTuple):
    next: int
    """The place in the chain of the next operation to be carried out."""
    placed: int
    """A bit for each unknown operation placed so far."""
    pair: Pair | None
    revision: int
    """Of the last operation."""


class _Search:
    """Of one key."""

    def __init__(
        self, key: KeyInDoubt, taken: AbstractSet[int], purse: _Purse, named: AbstractSet[int] | None = None
    ) -> None:
        """``named``: the revisions with numbers of a meaning; None: all of them."""
        self._chain, doubts = key
        self._doubts = sorted(doubts, key=lambda each: each.floor)
        self._taken = taken
        self._named = named
        self._names = sorted((named or frozenset()) - taken)
        self._purse = purse
        self._hopeless: set[_Position] = set()
        self._compared = {
            each.expects.operand
            for each in (*(placed.operation for placed in self._chain), *(doubt.operation for doubt in doubts))
            if each.expects is not None and each.expects.target is Target.VALUE
        }

    def solutions(self) -> Iterator[frozenset[int]]:
        """The revisions of the unknown operations, for each way to place them. Ways may repeat themselves."""
        # A stack of its own: a chain is longer than Python lets calls go deep.
        stack = [(_Position(0, 0, None, 0), frozenset[int](), self._steps(_Position(0, 0, None, 0)))]
        fruitful = [False]
        while stack:
            position, revisions, steps = stack[-1]
            step = next(steps, None)
            if step is None:
                stack.pop()
                if not fruitful.pop():
                    self._hopeless.add(position)
                elif fruitful:
                    fruitful[-1] = True
                continue
            taken, entered = step
            if entered in self._hopeless:
                continue
            self._purse.spend()
            revisions = revisions | {taken} if taken else revisions
            if entered.next == len(self._chain):
                fruitful[-1] = True
                yield revisions
                continue
            stack.append((entered, revisions, self._steps(entered)))
            fruitful.append(False)

    def _steps(self, position: _Position) -> Iterator[tuple[int, _Position]]:
        """The positions that may follow, each with the revision of an unknown operation placed there, or 0."""
        each = self._chain[position.next]
        operation, pair = each.operation, position.pair
        is_right = changes(operation, pair) if operation.answer is None else agrees(operation, pair)
        if is_right and position.revision <= each.revision - each.changed:
            behind = after(operation, pair, each.revision) if each.changed else pair
            yield 0, position._replace(next=position.next + 1, pair=behind, revision=each.revision)
            if operation.answer is not None and operation.answer.shows_before:
                return
        end = each.revision if each.changed else each.revision + 1
        for bit, doubt in self._candidates(position, end):
            for revision in self._free(max(position.revision, doubt.floor) + 1, end):
                behind = after(doubt.operation, pair, revision)
                yield revision, _Position(position.next, position.placed | bit, behind, revision)

    def _candidates(self, position: _Position, end: int) -> Iterator[tuple[int, Doubt]]:
        """The unknown operations to be tried next, before revision ``end``."""
        alike: set[Kind] = set()
        for place, doubt in enumerate(self._doubts):
            operation, bit = doubt.operation, 1 << place
            if position.placed & bit or doubt.floor + 1 >= end or not changes(operation, position.pair):
                continue
            if self._is_like_others(operation):
                if operation.kind in alike:
                    continue
                alike.add(operation.kind)
            yield bit, doubt

    def _is_like_others(self, operation: Operation) -> bool:
        if operation.kind is Kind.PUT:
            return operation.value not in self._compared
        return operation.kind is Kind.DELETE

    def _free(self, first: int, end: int) -> Iterator[int]:
        """The revisions from ``first`` to below ``end`` worth a try."""
        free = (each for each in range(first, end) if each not in self._taken)
        named = self._named
        if named is None:
            yield from free
            return
        yield from islice((each for each in free if each not in named), 1)
        yield from (each for each in self._names if first <= each < end)
