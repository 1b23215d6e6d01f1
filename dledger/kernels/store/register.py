"""The store's keys as registers with revisions: the operations of a history, and the answers to them.

The **model**: a revision, and for each key a pair or nothing. A change of a key raises the revision by one. Other
clients may change other keys at any time, so the revision may also rise by itself. A history is **linearizable** if its
operations can be put in one order with these properties:

* Each operation stands between its invocation and its completion.
* A store that carries them out in this order gives every answer as it was given.
* A serializable read stands anywhere before its completion: it may be of the past.
* An operation of unknown outcome stands anywhere behind its invocation, or nowhere. One that failed stands nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from dledger.kernels.history import FAIL, INFO, OK

BEGINNING: Final = -(1 << 62)
FOREVER: Final = 1 << 62
"""The completion of an operation of unknown outcome."""


class Pair(NamedTuple):
    """A key's value, with the revisions of its creation and of its last change, and its version."""

    value: str
    create: int
    mod: int
    version: int


class Kind(Enum):
    GET = "get"
    PUT = "put"
    DELETE = "delete"
    CAS = "cas"
    """A put if an expectation holds, else a get."""


class Target(Enum):
    """The field of a pair for a compare-and-set. An absent key has 0 in each of the numbers, and no value."""

    CREATE = "create"
    MOD = "mod"
    VERSION = "version"
    VALUE = "value"


class Expectation(NamedTuple):
    target: Target
    operand: int | str

    def holds(self, pair: Pair | None) -> bool:
        if pair is None:
            return self.target is not Target.VALUE and self.operand == 0
        return bool(getattr(pair, self.target.value) == self.operand)


class Answer(NamedTuple):
    """``revision``: of the header. ``before``: the pair before the operation, if the answer shows it."""

    revision: int
    changed: bool
    before: Pair | None = None
    shows_before: bool = True


@dataclass(frozen=True, slots=True)
class Operation:
    """Of one key. No two operations of a history write the same value."""

    id: int
    kind: Kind
    key: str
    invoked_ns: int
    completed_ns: int = FOREVER
    outcome: str = OK
    answer: Answer | None = None
    """Of those that are OK."""
    value: str = ""
    expects: Expectation | None = None
    is_serializable: bool = False

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.kind is not Kind.GET

    @property
    def begins_ns(self) -> int:
        """It stands behind this time."""
        return BEGINNING if self.is_serializable else self.invoked_ns

    @property
    def ends_ns(self) -> int:
        """It stands before this time."""
        return self.completed_ns if self.outcome == OK else FOREVER

    def __str__(self) -> str:
        text = f"operation {self.id}: {self.kind.value} {self.key}"
        if self.value:
            text += f" = {self.value}"
        if self.expects is not None:
            text += f" if {self.expects.target.value} is {self.expects.operand}"
        return f"{text} -> {self.answer or self.outcome}"


def changes(operation: Operation, before: Pair | None) -> bool:
    """Whether the operation changes a key with this pair."""
    match operation.kind:
        case Kind.GET:
            return False
        case Kind.PUT:
            return True
        case Kind.DELETE:
            return before is not None
        case Kind.CAS:
            return operation.expects is None or operation.expects.holds(before)


def after(operation: Operation, before: Pair | None, revision: int) -> Pair | None:
    """The key's pair behind an operation with a change at this revision."""
    if operation.kind is Kind.DELETE:
        return None
    if before is None:
        return Pair(operation.value, revision, revision, 1)
    return Pair(operation.value, before.create, revision, before.version + 1)


def agrees(operation: Operation, before: Pair | None) -> bool:
    """Whether the operation, carried out on this pair, gives its answer. Its revision is not looked at."""
    answer = operation.answer
    assert answer is not None
    if answer.changed != changes(operation, before):
        return False
    return not answer.shows_before or answer.before == before


__all__ = [
    "BEGINNING",
    "FAIL",
    "FOREVER",
    "INFO",
    "OK",
    "Answer",
    "Expectation",
    "Kind",
    "Operation",
    "Pair",
    "Target",
    "after",
    "agrees",
    "changes",
]
