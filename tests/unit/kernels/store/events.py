"""Random total histories, and watches as a right store tells them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from dledger.kernels.store.register import Pair
from dledger.kernels.store.timeline import Change, Seen
from dledger.kernels.store.watches import Kind, Response, Watch

KEYS = ("a", "b", "c", "d")
FIRST = 2


def changes_of(random: Random, revisions: int) -> list[Change]:
    """Of revisions from ``FIRST`` on, each with one change or several."""
    pairs: dict[str, Pair | None] = dict.fromkeys(KEYS)
    changes = []
    for revision in range(FIRST, FIRST + revisions):
        for key in sorted(random.sample(KEYS, random.choice([1, 1, 2, 3]))):
            before = pairs[key]
            if before is not None and random.random() < 0.3:
                pairs[key] = None
            elif before is None:
                pairs[key] = Pair(f"{key}{revision}", revision, revision, 1)
            else:
                pairs[key] = Pair(f"{key}{revision}", before.create, revision, before.version + 1)
            changes.append(Change(revision, key, pairs[key]))
    return changes


def seen_of(changes: Sequence[Change], *, with_before: bool = True) -> list[Seen]:
    pairs: dict[str, Pair | None] = {}
    seen = []
    for change in changes:
        seen.append(Seen(change, pairs.get(change.key) if with_before else None))
        pairs[change.key] = change.pair
    return seen


def watch_of(random: Random, changes: Sequence[Change], *, number: int = 0, key: str = "a", end: str = "c") -> Watch:
    """Of a range of keys, from some revision to some other one, with progress now and then."""
    last = changes[-1].revision
    created = random.randrange(1, last)
    start = random.choice([0, created + 1, random.randrange(1, last)])
    bare = Watch(number, key, end, start, (), random.random() < 0.5, random.random() < 0.2, random.random() < 0.2)
    first = start or created + 1
    due = [each for each in seen_of(changes) if bare.covers(each.change) and each.change.revision >= first]
    due = [each if bare.wants_before else Seen(each.change) for each in due]
    responses = [Response(Kind.CREATED, created)]
    at = first - 1
    while at < last and random.random() < 0.95:
        until = min(last, at + random.randrange(1, 4))
        events = tuple(each for each in due if at < each.change.revision <= until)
        if events:
            responses += _cut(random, events, until)
        elif random.random() < 0.5:
            responses.append(Response(Kind.PROGRESS, until))
        at = until
    return Watch(number, key, end, start, tuple(responses), bare.wants_before, bare.no_puts, bare.no_deletes)


def _cut(random: Random, events: tuple[Seen, ...], revision: int) -> list[Response]:
    """Whole, or in two fragments."""
    if len(events) < 2 or random.random() < 0.7:
        return [Response(Kind.EVENTS, revision, events)]
    at = random.randrange(1, len(events))
    return [
        Response(Kind.EVENTS, revision, events[:at], is_fragment=True),
        Response(Kind.EVENTS, revision, events[at:]),
    ]
