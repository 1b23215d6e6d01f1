"""The guarantees of watches, those tested by etcd, for each watch against the total history of events:

* ordered: no event comes after one of a higher revision.
* unique: no event comes twice.
* atomic: no revision is in two responses. Fragments of one response are one.
* reliable: between the first event and the last one none is missing, and each is as it was.
* resumable: the first event is the first one from the start revision on.
* bookmarkable: with a progress notification, all events up to its revision have come, and none comes later.
* prev_kv: the pair before an event is right. It is left out only if it was compacted, or not asked for.
* is_create: a put says rightly whether it created its key, and its version.
* filter: no event is of other keys, of a kind filtered out, or before the start revision.

And a watch was behind a compaction indeed if it was cancelled as compacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import NamedTuple

from dledger.kernels.kernel import Findings
from dledger.kernels.store.register import Pair
from dledger.kernels.store.timeline import Change, Seen, Timeline

MOST_EXAMPLES = 5
GUARANTEES = (
    "ordered",
    "unique",
    "atomic",
    "reliable",
    "resumable",
    "bookmarkable",
    "prev_kv",
    "is_create",
    "filter",
    "wrongly_compacted",
)


class Kind(Enum):
    CREATED = "created"
    EVENTS = "events"
    PROGRESS = "progress"
    CANCELED = "canceled"


class Response(NamedTuple):
    kind: Kind
    revision: int
    """Of the header; of a cancellation, the compacted revision, or 0."""
    events: tuple[Seen, ...] = ()
    is_fragment: bool = False
    """More of it follows."""


@dataclass(frozen=True, slots=True)
class Watch:
    id: int
    key: str
    end: str
    """Empty: the key alone. A zero byte: all keys from there on."""
    start: int
    """0: from the present on."""
    responses: tuple[Response, ...]
    wants_before: bool = False
    no_puts: bool = False
    no_deletes: bool = False

    def covers(self, change: Change) -> bool:
        """Whether it is to be told of such changes."""
        if self.no_deletes if change.pair is None else self.no_puts:
            return False
        if not self.end:
            return change.key == self.key
        return change.key >= self.key and (self.end == "\0" or change.key < self.end)

    @property
    def first(self) -> int:
        """The revision from which on it is to be told; 0: it was never created."""
        if self.start:
            return self.start
        created = next((each.revision for each in self.responses if each.kind is Kind.CREATED), None)
        return 0 if created is None else created + 1

    @property
    def seen(self) -> Iterator[Seen]:
        return chain.from_iterable(each.events for each in self.responses)


class WatchCheck:
    """Of all watches. ``compacted``: nobody can have compacted at a higher revision."""

    def __init__(self, watches: Iterable[Watch], timeline: Timeline, compacted: int = 0) -> None:
        self._timeline = timeline
        self._compacted = compacted
        self._counts = dict.fromkeys(("watches", "watch_events", "bookmarks", "compacted_watches"), 0)
        self._found = dict.fromkeys(GUARANTEES, 0)
        self._examples: list[str] = []
        for watch in watches:
            self._judge(watch)

    @property
    def findings(self) -> Findings:
        violations = {f"watch_{name}": number for name, number in self._found.items()}
        return Findings(self._counts, violations, tuple(self._examples))

    def _against(self, guarantee: str, watch: Watch, text: str) -> None:
        self._found[guarantee] += 1
        if len(self._examples) < MOST_EXAMPLES:
            self._examples.append(f"watch_{guarantee}: watch {watch.id} of {watch.key!r} from {watch.first}: {text}")

    def _judge(self, watch: Watch) -> None:
        self._counts["watches"] += 1
        self._judge_order(watch)
        self._judge_events(watch)
        self._judge_completeness(watch)
        self._judge_cancellation(watch)

    # One response after the other --------------------------------------------------------------------------------

    def _judge_order(self, watch: Watch) -> None:
        last = bookmark = 0
        is_continued = False
        told: set[tuple[int, str]] = set()
        for response in watch.responses:
            if response.kind is Kind.PROGRESS:
                self._counts["bookmarks"] += 1
                bookmark = max(bookmark, response.revision)
            revisions = [seen.change.revision for seen in response.events]
            if revisions and revisions[0] == last and not is_continued:
                self._against("atomic", watch, f"revision {last} is in two responses")
            for seen in response.events:
                revision, key = seen.change.revision, seen.change.key
                if revision < last:
                    self._against("ordered", watch, f"revision {revision} after {last}")
                if (revision, key) in told:
                    self._against("unique", watch, f"{key} of revision {revision} again")
                if revision <= bookmark:
                    self._against("bookmarkable", watch, f"revision {revision} after progress at {bookmark}")
                told.add((revision, key))
                last = max(last, revision)
            is_continued = response.is_fragment

    def _judge_events(self, watch: Watch) -> None:
        for seen in watch.seen:
            change = seen.change
            self._counts["watch_events"] += 1
            if not watch.covers(change) or change.revision < watch.first:
                self._against("filter", watch, f"it was told of {change}")
            if not self._timeline.first <= change.revision <= self._timeline.last:
                continue
            place = change.revision, change.key
            if place not in self._timeline.befores:
                continue  # an event that never was: it is counted where events are compared
            before = self._timeline.befores[place]
            if change.pair is not None and change.pair != _put(change.pair.value, before, change.revision):
                self._against("is_create", watch, f"{change}, and before it {before}")
            may_be_left_out = not watch.wants_before or change.revision <= self._compacted
            if seen.before != before and not (seen.before is None and may_be_left_out):
                self._against("prev_kv", watch, f"{seen.before} before {change}, where {before} was")
            elif seen.before is not None and not watch.wants_before:
                self._against("prev_kv", watch, f"{seen.before} before {change}, unasked")

    # Against the total history -----------------------------------------------------------------------------------

    def _judge_completeness(self, watch: Watch) -> None:
        told = [seen.change for seen in watch.seen]
        bookmark = max((each.revision for each in watch.responses if each.kind is Kind.PROGRESS), default=0)
        last_told = max((change.revision for change in told), default=0)
        first = max(watch.first, self._timeline.first)
        last = min(max(bookmark, last_told), self._timeline.last)
        if not watch.first or first > last:
            return
        due = [each for each in self._timeline.between(first, last) if watch.covers(each)]
        first_told = min((change.revision for change in told), default=last + 1)
        missing = set(due).difference(told)
        for each in sorted(missing, key=lambda each: each.revision):
            if each.revision > last_told:
                self._against("bookmarkable", watch, f"{each} is missing at progress of {bookmark}")
            elif each.revision < first_told:
                self._against("resumable", watch, f"{each} is missing, and the first one is of {first_told}")
            else:
                self._against("reliable", watch, f"{each} is missing")
        known = set(due)
        for change in told:
            if first <= change.revision <= last and watch.covers(change) and change not in known:
                self._against("reliable", watch, f"{change} never was")

    def _judge_cancellation(self, watch: Watch) -> None:
        reached = watch.first - 1
        for response in watch.responses:
            reached = max(reached, *(seen.change.revision for seen in response.events), 0)
            if response.kind is Kind.PROGRESS:
                reached = max(reached, response.revision)
            if response.kind is Kind.CANCELED and response.revision:
                self._counts["compacted_watches"] += 1
                if watch.first and reached + 1 >= response.revision:
                    self._against("wrongly_compacted", watch, f"at {response.revision}, where it was at {reached}")


def _put(value: str, before: Pair | None, revision: int) -> Pair:
    """A key's pair behind a put."""
    if before is None:
        return Pair(value, revision, revision, 1)
    return Pair(value, before.create, revision, before.version + 1)
