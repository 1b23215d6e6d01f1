"""The total history of a store's events: of every revision its changes, merged from watches of all keys, one a node.

It is judged by itself, and against the writes. Each answered write is in it at its revision. Each event is of a write,
and no write is in it twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dledger.kernels.history import FAIL, OK
from dledger.kernels.kernel import Findings
from dledger.kernels.store.register import Pair

MOST_EXAMPLES = 5
VIOLATIONS = (
    "missing_revisions",
    "differing_events",
    "lost_events",
    "uncaused_events",
    "failed_events",
    "doubled_events",
)


class Change(NamedTuple):
    """An event: one key as it is from this revision on."""

    revision: int
    key: str
    pair: Pair | None
    """None: it was deleted."""


def _revision(change: Change) -> int:
    return change.revision


class Seen(NamedTuple):
    """An event as a watch told it."""

    change: Change
    before: Pair | None = None
    """The pair before it, if it was told."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Complete from revision ``first`` to ``last``."""

    first: int
    last: int
    changes: Sequence[Change]
    """In order of revision, and of key within one."""
    befores: Mapping[tuple[int, str], Pair | None] = field(default_factory=dict)
    """Of each change, by revision and key: the pair before it."""

    def between(self, first: int, last: int) -> Iterator[Change]:
        """The changes from one revision to another one, both included."""
        begin = bisect_left(self.changes, first, key=_revision)
        return iter(self.changes[begin : bisect_right(self.changes, last, lo=begin, key=_revision)])


@dataclass(frozen=True, slots=True)
class Write:
    """An operation with changes of keys, all at one revision."""

    id: int
    outcome: str
    revision: int
    """0: unknown, or nothing was changed."""
    changes: tuple[tuple[str, str | None], ...]
    """Keys with their new values; None: a delete."""


def timeline_of(stories: Iterable[Iterable[Seen]], first: int, last: int) -> tuple[Timeline, Findings]:
    """Of the events told by several watches of all keys, from ``first`` to ``last``.

    * missing_revisions: no watch told of them, although each revision has a change;
    * differing_events: two watches told of one revision, and not the same.
    """
    told: dict[int, tuple[Change, ...]] = {}
    differing: list[str] = []
    for story in stories:
        by_revision: defaultdict[int, set[Change]] = defaultdict(set)
        for seen in story:
            by_revision[seen.change.revision].add(seen.change)
        for revision, found in by_revision.items():
            mine = tuple(sorted(found, key=lambda each: each.key))
            if told.setdefault(revision, mine) != mine:
                differing.append(f"revision {revision}: {told[revision]}, and {mine}")
    missing = [revision for revision in range(first, last + 1) if revision not in told]
    changes = [change for revision in sorted(told) if first <= revision <= last for change in told[revision]]
    examples = [f"differing_events: {each}" for each in differing[:MOST_EXAMPLES]]
    if missing:
        examples.append(f"missing_revisions: {missing[:MOST_EXAMPLES]}")
    violations = {"missing_revisions": len(missing), "differing_events": len(differing)}
    findings = Findings({"revisions": len(told), "events": len(changes)}, violations, tuple(examples))
    return Timeline(first, last, changes, _befores(changes)), findings


def _befores(changes: Iterable[Change]) -> dict[tuple[int, str], Pair | None]:
    pairs: dict[str, Pair | None] = {}
    befores = {}
    for each in changes:
        befores[each.revision, each.key] = pairs.get(each.key)
        pairs[each.key] = each.pair
    return befores


def check_causes(timeline: Timeline, writes: Iterable[Write], prefixes: tuple[str, ...]) -> Findings:
    """The events of the keys with these prefixes against the writes: these are all writes of such keys.

    * lost_events: an answered write is not at its revision;
    * uncaused_events: an event is of no write;
    * failed_events: an event is of a write that surely failed;
    * doubled_events: one write has events at several revisions.
    """
    judge = _Causes(timeline, prefixes)
    for write in writes:
        judge.take(write)
    return judge.findings()


class _Causes:
    def __init__(self, timeline: Timeline, prefixes: tuple[str, ...]) -> None:
        self._timeline = timeline
        self._at: defaultdict[int, dict[str, str | None]] = defaultdict(dict)
        self._puts: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for each in timeline.changes:
            if each.key.startswith(prefixes):
                value = None if each.pair is None else each.pair.value
                self._at[each.revision][each.key] = value
                if value is not None:
                    self._puts[each.key, value].append(each.revision)
        self._found = dict.fromkeys(VIOLATIONS[2:], 0)
        self._examples: list[str] = []
        self._answered: set[int] = set()
        self._known: set[tuple[str, str]] = set()
        self._deletes: set[str] = set()
        """The keys with deletes of unknown outcome."""

    def _against(self, violation: str, text: str) -> None:
        self._found[violation] += 1
        if len(self._examples) < MOST_EXAMPLES:
            self._examples.append(f"{violation}: {text}")

    def take(self, write: Write) -> None:
        if write.outcome == OK:
            if write.revision:
                self._judge_answered(write)
            return
        for key, value in write.changes:
            if value is not None:
                self._judge_unanswered(write, key, value)
            elif write.outcome != FAIL:
                self._deletes.add(key)

    def _judge_answered(self, write: Write) -> None:
        self._answered.add(write.revision)
        self._known |= {(key, value) for key, value in write.changes if value is not None}
        is_covered = self._timeline.first <= write.revision <= self._timeline.last
        if is_covered and self._at.get(write.revision) != dict(write.changes):
            self._against("lost_events", f"{write}, but there is {self._at.get(write.revision)}")
        for key, value in write.changes:
            if value is not None and len(self._puts[key, value]) > 1:
                self._against("doubled_events", f"{write} is at revisions {self._puts[key, value]}")

    def _judge_unanswered(self, write: Write, key: str, value: str) -> None:
        self._known.add((key, value))
        revisions = self._puts[key, value]
        if revisions and write.outcome == FAIL:
            self._against("failed_events", f"{write} is at revision {revisions[0]}")
        if len(revisions) > 1:
            self._against("doubled_events", f"{write} is at revisions {revisions}")

    def findings(self) -> Findings:
        for revision, changes in self._at.items():
            if revision not in self._answered:
                for key, value in changes.items():
                    is_caused = key in self._deletes if value is None else (key, value) in self._known
                    if not is_caused:
                        self._against("uncaused_events", f"{key} = {value} at revision {revision}")
        return Findings({}, self._found, tuple(self._examples))
